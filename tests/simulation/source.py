"""The watch: it turns the store's changes into events, late, and misses those during its gaps."""

import json
from typing import Any

from shared.adapters.events.cloudevents import TICK, Event, event_of, with_proof
from shared.core.decision.decide import Context, Ignore, Reason, decide
from shared.core.decision.namespaces import plain_namespace
from shared.devserver.apiserver.listing import Change
from shared.devserver.apiserver.resources import Resource
from shared.messages import SweepStep

_VERBS = {"ADDED": "add", "MODIFIED": "update"}


class Source:
    """What an ApiServerSource or our own watch brings: nothing of what existed before, each kind's changes in order.

    Where the watch is in the same process it also fills the process's memory, as late as it is.
    """

    def __init__(self, world: Any) -> None:
        self.world = world
        self.down = False
        self.lag_max = world.rng.choice((0.05, 1.0, 30.0))
        self._next: dict[str, float] = {}
        self._ticks = 0

    def changed(self, resource: Resource, change: Change) -> None:
        """Hear of a change; to be added to the store's listeners."""
        rule = self.world.catalogue.get(resource.api_version, resource.kind)
        if rule is None or self.down:
            return
        loop, faults = self.world.loop, self.world.faults
        lag = faults.rng.uniform(0.001, self.lag_max if faults.active else 0.05)
        at = self._next[rule.kind] = max(self._next.get(rule.kind, 0.0), loop.time() + lag)
        loop.call_at(at, self._bring, rule, change)

    def relist(self) -> None:
        """The watch is back: it goes on from now, and where it is ours it asks for a sweep of each kind."""
        self.down = False
        if self.world.broker.synchronous:
            for rule in self.world.catalogue.rules:
                step = SweepStep(
                    kinds=(f"{rule.api_version}/{rule.kind}",), sweep_id=f"relist/{self.world.loop.time()}"
                )
                self.world.broker.send(event_of(step, source="watch"))

    def tick(self) -> None:
        """A PingSource's."""
        self._ticks += 1
        self.world.note("source", "ticks")
        self.world.broker.send(Event(id=f"tick/{self._ticks}", source="ping", type=TICK, data=b"{}"))

    def _bring(self, rule: Any, change: Change) -> None:
        if self.down:
            return
        uid, data = change.obj["metadata"]["uid"], json.dumps(change.obj).encode()
        self._remember(rule, change, uid, data)
        if change.type in _VERBS:
            kind = f"dev.knative.apiserver.resource.{_VERBS[change.type]}"
            event = Event(id=f"{uid}/{change.revision}", source="watch", type=kind, subject=uid, data=data)
            proofs = getattr(self.world.process, "watch_proofs", None)
            proof = proofs.of_change(rule, change.obj) if proofs else None
            self.world.broker.send(with_proof(event, proof) if proof else event)

    def _remember(self, rule: Any, change: Change, uid: str, data: bytes) -> None:
        """As `shared.source.watches` does."""
        memory = getattr(self.world.process, "memory", None)
        if memory is None:
            return
        evaluator = self.world.process.evaluators["schedule"]
        namespace = evaluator.namespaces.get_cached(change.obj["metadata"]["namespace"]) or plain_namespace("any")
        decision = decide(change.obj, rule, self.world.clocks.local(), Context(evaluator.policy(), namespace))
        is_undecided = decision.reason is Reason.RANK_UNREAD or bool(decision.facts.unread)
        kept = isinstance(decision, Ignore) and not is_undecided
        if change.type == "DELETED" or kept:
            memory.forget(uid)
        else:
            memory.remember(uid, data)
