"""Policy files as processes see them: a new one comes to each at a time of its own, good or bad."""

from typing import Any

from shared.adapters.config.policy_file import POLICY_POLL_SECONDS, PolicyFile
from tests.simulation.rules import Policy


class Mount:
    """One process's file, as a path that can be read; it outlives the process."""

    name = "policy.yaml"

    def __init__(self, world: Any, policy: Policy) -> None:
        self.world = world
        self._held = [(world.loop.time(), policy)]
        self._last_good = policy

    @property
    def policy(self) -> Policy:
        """What it holds."""
        return self._held[-1][1]

    def put(self, policy: Policy) -> None:
        self._held.append((self.world.loop.time(), policy))

    def read_text(self) -> str:
        if self.policy.is_good:
            self._last_good = self.policy
        return self.policy.text

    def in_force(self) -> tuple[Policy, ...]:
        """The policies that a process may use now: those of the last second; instead of a bad one, the last good.

        Only what was ever read counts as that: one that came and went unseen was never in force.
        """
        now = self.world.loop.time()
        ends = [at for at, _ in self._held[1:]] + [now]
        held = [policy for (_, policy), end in zip(self._held, ends, strict=True) if end >= now - POLICY_POLL_SECONDS]
        good = [policy for policy in held if policy.is_good]
        return tuple(dict.fromkeys(good if len(good) == len(held) else [*good, self._last_good]))

    def open(self, kind: type[PolicyFile] = PolicyFile) -> PolicyFile:
        """What a process reads it by.

        Raises:
            FileError: It is bad at the start.
        """
        clock = self.world.loop.time
        return kind(self, self.world.catalogue, self._report, clock=clock)  # type: ignore[arg-type]

    def _report(self, problem: str) -> None:
        self.world.checks.telemetry.problem("bad policy file", error=problem)


FUNCTIONS = ("schedule", "expire", "sweep")
"""Those that go by a policy."""


def mounts_of(world: Any, policy: Policy) -> dict[str, Mount | None]:
    """By function: one for all where they share a process, else one for each."""
    shared = Mount(world, policy)
    return {function: shared if world.broker.synchronous else Mount(world, policy) for function in FUNCTIONS}


NO_MOUNTS: dict[str, Mount | None] = dict.fromkeys(FUNCTIONS)
