"""Untrusted events: forged, malformed, or about objects that never existed."""

import json
import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, ClassVar

from shared.adapters.events.cloudevents import Event
from tests.simulation.sim_object import SimObject
from tests.simulation.users import RESOURCES
from tests.simulation.written_fields import stamp

FIRED = "dev.ttlafterfinished.timer.fired"
_SET = "dev.ttlafterfinished.timer.set"
_SWEEP = "dev.ttlafterfinished.sweep.continue"
_UPDATE = "dev.knative.apiserver.resource.update"
_GARBAGE: tuple[Any, ...] = (None, [], {}, 7, "", {"ref": None}, {"timers": []}, {"timers": [{}]}, {"kinds": 3})
_STEPS: tuple[Any, ...] = (
    {"kinds": ["batch/v1/Job"], "continueToken": "bm9uc2Vuc2U"},
    {"kinds": ["batch/v1/Job"], "continueToken": "\u0000", "step": -1},
    {"kinds": ["Job"]},
    {"kinds": [""]},
    {"kinds": ["/", "v1/Pod/extra", "v1/Secret"]},
    {"kinds": ["v1/Pod"] * 4},
)


class Forger:
    """Sends what a stranger with access to the Broker could send.

    Attributes:
        extensions: The extension attributes of each event.
    """

    extensions: ClassVar[Mapping[str, str]] = {}

    def __init__(self, world: Any) -> None:
        self.world = world
        self.rng: random.Random = world.rng
        self.sent = 0
        self._forgeries: tuple[Callable[[], tuple[str, Any]], ...] = (
            lambda: (FIRED, self._timer(self._thing())),
            lambda: (FIRED, self._timer(self._thing())),
            lambda: (FIRED, self._timer(self._thing(), uid="another")),
            lambda: (FIRED, self._timer(self._thing(), name="pod-0")),
            lambda: (FIRED, self._timer(self._thing(), kind="Secret")),
            lambda: (_SET, {"timers": [self._timer(self._thing()) for _ in range(3)]}),
            lambda: (_UPDATE, self._object()),
            lambda: (_SWEEP, self.rng.choice(_STEPS)),
            lambda: (self.rng.choice((FIRED, _SET, _SWEEP, _UPDATE)), self.rng.choice(_GARBAGE)),
        )

    def act(self) -> None:
        """Send one forgery."""
        kind, data = self.rng.choice(self._forgeries)()
        body = json.dumps(data).encode()
        if self.rng.random() < 0.1:
            body = body[: len(body) // 2]
        self.sent += 1
        self.world.note("forger", f"sends {kind} {body[:160]!r}")
        self.world.broker.send(
            Event(
                id=f"forged/{self.sent}",
                source="stranger",
                type=kind,
                subject="forged",
                data=body,
                extensions=self.extensions,
            )
        )

    def _thing(self) -> SimObject:
        history = list(self.world.history.all.values())
        return self.rng.choice(history) if history else SimObject("Pod", "default", "pod-0", "none")

    def _timer(self, obj: SimObject, **lies: str) -> dict[str, Any]:
        ref = {"kind": obj.kind, "namespace": obj.namespace, "name": obj.name, "uid": obj.uid, **lies}
        ref["apiVersion"] = RESOURCES[obj.kind].api_version
        due_at = self.world.clocks.server() + timedelta(seconds=self.rng.choice((-1e6, -60, -1, 0, 0.5, 30, 1e5)))
        return {"ref": ref, "purpose": "expire", "dueAt": due_at.isoformat()}

    def _object(self) -> dict[str, Any]:
        """A live object's update, finished long ago and due, in somebody's dreams."""
        obj = self._thing()
        at = stamp(self.world.clocks.server() - timedelta(hours=1))
        metadata = {"name": obj.name, "namespace": obj.namespace, "uid": obj.uid, "resourceVersion": "1"}
        metadata["annotations"] = {"ttlafterfinished.dev/ttl": "1s"}  # type: ignore[assignment]
        conditions = [{"type": "Complete", "status": "True", "lastTransitionTime": at}]
        identity = {"apiVersion": RESOURCES[obj.kind].api_version, "kind": obj.kind, "metadata": metadata}
        return {**identity, "status": {"conditions": conditions, "phase": "Succeeded"}}
