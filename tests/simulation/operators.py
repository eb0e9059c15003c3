"""The operators: they write policies and annotate namespaces, and change both now and then."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

from shared.core.values.objects import ANNOTATION_DOMAIN
from shared.devserver.apiserver.resources import NAMESPACES as NAMESPACE_RESOURCE
from shared.devserver.apiserver.writes import WriteOptions
from tests.simulation.expectations import Place
from tests.simulation.mounts import NO_MOUNTS, Mount, mounts_of
from tests.simulation.rules import Policy, draw_bad, draw_policy
from tests.simulation.users import NAMESPACES

DELAYS = (0.0, 0.7, 5.0, 20.0)
"""Seconds until a process finds a new policy in its file, at most; the kubelet takes its time."""

_PLACES: tuple[tuple[dict[str, str], Place], ...] = (
    ({}, Place()),
    ({}, Place()),
    ({"exempt": "true"}, Place(exempt=True)),
    ({"exempt": "false", "max-ttl": "2m"}, Place(max_ttl=timedelta(minutes=2))),
    ({"max-ttl": "20s", "default-ttl": "1m"}, Place(max_ttl=timedelta(seconds=20), default=timedelta(minutes=1))),
    ({"default-ttl": "90s"}, Place(default=timedelta(seconds=90))),
    ({"max-ttl": "soon"}, Place(malformed=True)),
    ({"exempt": "yes"}, Place(malformed=True)),
)


class Operators:
    """Writes policies and annotations; the pause between two changes is longer than the propagation of one."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.rng: random.Random = world.rng
        self.active = True
        self._newest = draw_policy(self.rng, only_max_count=self.world.mutant.needs_max_count)
        self.mounts = mounts_of(world, self._newest)
        self._files = tuple(dict.fromkeys(mount for mount in self.mounts.values() if mount))
        world.history.declared = replace(world.history.declared, rules=self._newest.rules)
        world.note("operators", f"begins with {self._newest.text}")

    def pause(self) -> float:
        return self.rng.uniform(DELAYS[-1] + 1, 200)

    def act(self) -> None:
        """Change the policy or a namespace."""
        act = self.rng.choice((self._rule_anew, self._rule_anew, self._slip, self._govern, self._govern))
        act()

    def settle(self) -> None:
        """The last good policy is in all files, and stays."""
        self.active = False
        for mount in self._files:
            mount.put(self._newest)

    def _rule_anew(self) -> None:
        self._newest = draw_policy(self.rng, only_max_count=self.world.mutant.needs_max_count)
        self.world.history.declared = replace(self.world.history.declared, rules=self._newest.rules)
        self._send(self._newest)

    def _slip(self) -> None:
        self._send(draw_bad(self.rng))

    def _send(self, policy: Policy) -> None:
        self.world.note("operators", f"writes {policy.text}")
        for mount in self._files:
            self.world.loop.call_later(self.rng.uniform(0, self.rng.choice(DELAYS)), self._bring, mount, policy)

    def _bring(self, mount: Mount, policy: Policy) -> None:
        if self.active:
            mount.put(policy)

    def _govern(self) -> None:
        name = self.rng.choice(NAMESPACES)
        said, place = self.rng.choice(_PLACES)
        self.world.note("operators", f"says of {name} {said}")
        annotations = dict.fromkeys(("exempt", "max-ttl", "default-ttl")) | said
        change = {
            "metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/{key}": text for key, text in annotations.items()}}
        }
        with self.world.acting("users"):
            self.world.patch(NAMESPACE_RESOURCE, "", name, change, WriteOptions(manager="kubectl"))
            self.world.history.say(name, place)


class NoOperators:
    """No policy, and no annotated namespace."""

    active = False
    mounts = NO_MOUNTS

    def settle(self) -> None:
        pass
