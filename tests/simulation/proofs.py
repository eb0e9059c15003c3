"""Deletions without a read: proofs in the simulated worlds, what a thief of them sends, and systems that check less."""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, cast

from shared.core.decision.decide import Context, decide
from shared.core.kinds.rule import KindRule
from shared.evaluation.evaluator import Evaluation, Evaluator
from shared.evaluation.proofs import Proofs
from shared.messages import Proof, Timer
from shared.ports import Cluster, Snapshot
from tests.simulation.evaluators import Evaluated, RecordingEvaluator, evaluated
from tests.simulation.forger import FIRED, Forger
from tests.simulation.mutants import Mutant

KEY = b"the key of the simulation, which no forger has"


class SimProofs(Proofs):
    """The real proofs. Every caller counts as authenticated, the forger too, so only the signature stops it."""

    world: Any

    def __init__(self, world: Any, evaluator: Evaluator, cluster: Cluster) -> None:
        super().__init__(KEY, evaluator, cluster, is_authenticated=True, is_guarded=self._is_guarded)
        self.world = world

    async def _is_guarded(self, _rule: KindRule) -> bool:
        return True

    async def find(self, timer: Timer, rule: KindRule) -> Any:
        if timer.proof and isinstance(self.evaluator, RecordingEvaluator):
            evaluated.set(Evaluated(self.world.loop.time(), self.evaluator.mount))
        found = await super().find(timer, rule)
        if timer.proof:
            self.world.note("proofs", f"{'holds' if found else 'does not hold'} of {timer.ref} {timer.ref.uid}")
        return found

    def of_change(self, rule: KindRule, obj: dict[str, Any]) -> Proof | None:
        """What the watch signs about a version that it has just received."""
        namespace = self.evaluator.namespaces.get_cached(obj["metadata"]["namespace"])
        context = Context(self.evaluator.policy(), namespace)
        decision = decide(obj, rule, self.world.clocks.local(), context)
        return self.make(Evaluation(decision, context=context), rule, obj)


class ProofForger(Forger):
    """A stranger who has seen every stored timer, knows every object, and has no key."""

    extensions: ClassVar[Mapping[str, str]] = {"purpose": "expire"}  # on which the Trigger of `expire` filters

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.rng: random.Random = world.rng
        forgeries: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (
            self._replayed,
            self._early,
            self._of_the_present_version,
            self._early_and_of_the_present_version,
            self._of_another_object,
            self._with_another_signature,
        )
        self._forgeries += tuple(lambda forge=forge: (FIRED, forge(self._stolen())) for forge in forgeries) * 2

    def _stolen(self) -> dict[str, Any]:
        """A stored timer; one whose object has changed since, if there is one."""
        pending = [one.timer for one in self.world.timer_store.pending.values() if one.timer.proof]
        proven = [timer.model_dump(mode="json", by_alias=True) for timer in pending]
        changed = [one for one in proven if self._version_of(one["ref"]) not in ("1", one["proof"]["resourceVersion"])]
        return self.rng.choice(changed or proven or [self._timer(self._thing())])

    def _replayed(self, timer: dict[str, Any]) -> dict[str, Any]:
        """Only its instant is another: the timer fires now."""
        return {**timer, "dueAt": self._at(-60)}

    def _early(self, timer: dict[str, Any]) -> dict[str, Any]:
        return self._with(timer, dueAt=self._at(-60), finishedAt=self._at(-90))

    def _of_the_present_version(self, timer: dict[str, Any]) -> dict[str, Any]:
        return self._with(timer, resourceVersion=self._version_of(timer["ref"]))

    def _early_and_of_the_present_version(self, timer: dict[str, Any]) -> dict[str, Any]:
        return self._with(self._of_the_present_version(timer), dueAt=self._at(-60))

    def _of_another_object(self, timer: dict[str, Any]) -> dict[str, Any]:
        ref = self._timer(self._thing())["ref"]
        return self._with({**timer, "ref": ref}, resourceVersion=self._version_of(ref), dueAt=self._at(-60))

    def _with_another_signature(self, timer: dict[str, Any]) -> dict[str, Any]:
        return self._with(timer, signature=f"{self.rng.getrandbits(256):064x}", dueAt=self._at(-60))

    def _with(self, timer: dict[str, Any], **lies: str) -> dict[str, Any]:
        return {**timer, "proof": {**timer["proof"], **lies}} if "proof" in timer else timer

    def _at(self, seconds: float) -> str:
        return str((self.world.clocks.server() + timedelta(seconds=seconds)).isoformat())

    def _version_of(self, ref: dict[str, str]) -> str:
        for resource in self.world.store.resources:
            if resource.kind == ref["kind"]:
                obj = self.world.store.table(resource).objects.get((ref["namespace"], ref["name"]))
                if obj is not None:
                    return str(obj["metadata"]["resourceVersion"])
        return "1"


# Mutants


class _AnySignature(SimProofs):
    """The signature is not compared."""

    def _is_signed(self, *_parts: Any) -> bool:
        return True


class _WithoutDueAt(SimProofs):
    def _sign(self, proof: Proof, *parts: Any) -> str:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        return super()._sign(proof.model_copy(update={"due_at": at, "finished_at": at}), *parts)


class _WithoutVersion(SimProofs):
    def _sign(self, proof: Proof, *parts: Any) -> str:
        return super()._sign(proof.model_copy(update={"resource_version": "any"}), *parts)


class _AtDue:
    """A cluster at which the due time of each proof has come."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def present(self, obj: dict[str, Any], *, due_at: datetime) -> Snapshot:
        return Snapshot(obj, due_at)


class _AtOnce(SimProofs):
    """A true signature is enough, whatever the time is."""

    def __init__(self, world: Any, evaluator: Evaluator, cluster: Cluster) -> None:
        super().__init__(world, evaluator, cast("Cluster", _AtDue(cluster)))


def _mutant(*rules: str, kind: type[SimProofs]) -> Mutant:
    return Mutant(rules=frozenset(rules), proofs=kind, needs_policy=False)


PROOF_MUTANTS: Mapping[str, Mutant] = {
    "signature-not-compared": _mutant("S1", "S2", "S3", kind=_AnySignature),
    "due-time-not-signed": _mutant("S1", "S3", kind=_WithoutDueAt),
    "version-not-signed": _mutant("S1", "S3", kind=_WithoutVersion),
    "clock-not-asked": _mutant("S1", kind=_AtOnce),
}
"""Mutants without another condition rarely show here; tests/unit/evaluation/test_proofs.py catches them."""
