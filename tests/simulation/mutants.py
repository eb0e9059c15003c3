"""Systems with one deliberate mistake each: checkers that catch none of them would be worth nothing."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast

from shared.adapters.config.policy_file import PolicyFile
from shared.core.decision.decide import Context, Decision, Expire, decide
from shared.core.decision.namespaces import plain_namespace
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import ObjectRef, ref_of
from shared.devserver.apiserver.deletion import DeleteOptions
from shared.errors import ConflictError, ForbiddenError, TryLaterError
from shared.messages import Timer, TimersSet
from shared.ports import Page, Snapshot
from shared.safeguards.safeguards import Delayed, Denied
from shared.usecases.handler import Handled, Handler
from shared.usecases.sweep import Sweep
from tests.simulation.budget import CheckedRestraints
from tests.simulation.evaluators import RecordingEvaluator
from tests.simulation.simcluster import SimCluster


@dataclass(frozen=True)
class Mutant:
    """What a process is built of.

    Attributes:
        rules: Which checks are to catch it; empty for the real system.
        needs_memory: It shows only where the watch fills the process's memory.
        needs_policy: Whether there is a policy; None where the seed says so.
        needs_max_count: It shows mostly where the policies have nothing but `maxCount`.
        proofs: What makes and checks proofs, in a world that has them; None for the real ones.
    """

    cluster: Any = SimCluster
    expiry: Any = Handler
    sweep: Any = Sweep
    safeguards: Any = CheckedRestraints
    evaluator: Any = RecordingEvaluator
    policies: Any = PolicyFile
    rules: frozenset[str] = frozenset()
    needs_memory: bool = False
    needs_policy: bool | None = None
    needs_max_count: bool = False
    proofs: Any = None


class _WithoutVersion(SimCluster):
    def options(self, uid: str, version: str, propagation: str) -> DeleteOptions:
        return DeleteOptions(uid=uid, propagation=propagation)


class _LiveVersion(SimCluster):
    """Both preconditions are there, and worthless: they are those of the object as it is, not as it was read."""

    def delete_object(self, rule: KindRule, ref: ObjectRef, options: DeleteOptions) -> Any:
        live = self.read_object(rule, ref)["metadata"]
        options = replace(options, uid=live["uid"], resource_version=live["resourceVersion"])
        return super().delete_object(rule, ref, options)


class _AnyUid(SimCluster):
    def options(self, uid: str, version: str, propagation: str) -> DeleteOptions:
        return DeleteOptions(resource_version=version, propagation=propagation)


class _ByLocalClock(SimCluster):
    def time_of(self, read_at: datetime) -> datetime:
        return self.world.clocks.local()


class _HoldIgnored(SimCluster):
    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        annotations = obj["metadata"].get("annotations", {})
        rest = {name: text for name, text in annotations.items() if not name.endswith("/hold")}
        return obj | {"metadata": obj["metadata"] | {"annotations": rest}}


class _MalformedIgnored(SimCluster):
    """What cannot be read is taken for one second."""

    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        annotations = obj["metadata"].get("annotations", {})
        guessed = {name: text if text[:1].isdigit() or text == "never" else "1s" for name, text in annotations.items()}
        return obj | {"metadata": obj["metadata"] | {"annotations": guessed}}


class _ForbiddenTriedAgain(SimCluster):
    async def delete(self, rule: KindRule, obj: dict[str, Any], **options: Any) -> bool:
        try:
            return await super().delete(rule, obj, **options)
        except ForbiddenError as error:
            raise TryLaterError(str(error)) from None


class _ConflictIgnored(SimCluster):
    """A 409 is answered by the same DELETE without preconditions."""

    forced = False

    def options(self, uid: str, version: str, propagation: str) -> DeleteOptions:
        return DeleteOptions() if self.forced else super().options(uid, version, propagation)

    async def delete(self, rule: KindRule, obj: dict[str, Any], **options: Any) -> bool:
        try:
            return await super().delete(rule, obj, **options)
        except ConflictError:
            forced = _ConflictIgnored(self.world, self.memory)
            forced.forced = True
            return await forced.delete(rule, obj, **options)


class _FirstPageOnly(SimCluster):
    async def list_page(self, rule: KindRule, **options: Any) -> Page:
        return replace(await super().list_page(rule, **options), continue_token="")


class _VersionCompared(SimCluster):
    """What is served in another version than the timer names is taken for another object."""

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        snapshot = await super().get(rule, ref)
        return snapshot if snapshot and snapshot.obj["apiVersion"] == ref.api_version else None


class _VersionGuessed(SimCluster):
    """The first version that the rule names is asked for, whatever is served."""

    async def request_of(self, verb: str, rule: KindRule, ref: ObjectRef, act: Any) -> Any:
        first = next(iter(self.world.catalogue.of(rule.group, rule.kind)), rule)
        return await self.request(verb, rule.kind, ref, lambda: act(first), missing_ok=True), first


class _EventTrusted(Handler):
    """The timer says that the object is due, so it must be."""

    async def handle(self, timer: Timer) -> Handled | None:
        rule = self.catalogue.get(timer.ref.api_version, timer.ref.kind)
        snapshot = await self.cluster.get(rule, timer.ref) if rule else None
        if rule and snapshot and ref_of(snapshot.obj) == timer.ref:
            with suppress(ConflictError):
                await self.cluster.delete(rule, snapshot.obj)
        return None


class _ByNameOnly(Handler):
    """Deletes what has the name now, as long as that is due; its uid may be another."""

    async def handle(self, timer: Timer) -> Handled | None:
        rule = self.catalogue.get(timer.ref.api_version, timer.ref.kind)
        snapshot = await self.cluster.get(rule, timer.ref) if rule else None
        if rule and snapshot and isinstance(await self._decide(rule, snapshot), Expire):
            meant = snapshot.obj | {"metadata": snapshot.obj["metadata"] | {"uid": timer.ref.uid}}
            with suppress(ConflictError):
                await _AnyUid.delete(_AnyUid(cast("SimCluster", self.cluster).world, None), rule, meant)
        return None

    async def _decide(self, rule: KindRule, snapshot: Snapshot) -> Decision:
        return await self.evaluator.decide(snapshot, rule)


class _OwnerIgnored(SimCluster):
    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        return obj | {"metadata": obj["metadata"] | {"ownerReferences": []}}

    async def get_cached(self, ref: ObjectRef, *, due_at: datetime) -> Snapshot | None:
        return None


class _OfAnyGroup(Catalogue):
    """A kind of another group is meant as well."""

    def of(self, group: str, kind: str) -> tuple[KindRule, ...]:
        return tuple(rule for rule in self.rules if rule.kind == kind)


class _GroupOfOwnerIgnored(RecordingEvaluator):
    def __post_init__(self, telemetry: Any, only: str) -> None:
        self.kinds = _OfAnyGroup(self.kinds.rules)
        super().__post_init__(telemetry, only)


class _ReplacedKept(RecordingEvaluator):
    """A ReplicaSet keeps its finished Pods."""

    def __post_init__(self, telemetry: Any, only: str) -> None:
        rules = (rule.model_copy(update={"replaces_finished": ()}) for rule in self.kinds.rules)
        self.kinds = Catalogue(tuple(rules))
        super().__post_init__(telemetry, only)


class _RecallTrusted(SimCluster):
    """What is remembered is good enough for a No as well: it is not read again."""

    async def get(self, rule: KindRule, ref: ObjectRef) -> Snapshot | None:
        remembered = await self.get_cached(ref, due_at=self.world.clocks.server())
        if remembered is not None:
            decision = decide(remembered.obj, rule, remembered.read_at, Context(namespace=plain_namespace("any")))
            if not isinstance(decision, Expire):
                return remembered
        return await super().get(rule, ref)


class _WaitForgotten(Handler):
    async def handle(self, timer: Timer) -> Handled | None:
        answer = await super().handle(timer)
        return None if isinstance(answer, TimersSet) else answer

    async def handle_listed(self, rule: KindRule, snapshot: Snapshot, **options: Any) -> Handled | None:
        answer = await super().handle_listed(rule, snapshot, **options)
        return None if isinstance(answer, TimersSet) else answer


class _HotLoop(Handler):
    """Not due yet, so the timer is set as it was: it comes straight back from an engine whose clock is ahead."""

    async def handle(self, timer: Timer) -> Handled | None:
        answer = await super().handle(timer)
        return TimersSet(timers=(timer,)) if isinstance(answer, TimersSet) else answer


class _OneSecondEarly(SimCluster):
    def time_of(self, read_at: datetime) -> datetime:
        return read_at + timedelta(seconds=1)


class _Unreported(Handler):
    def report(self, ref: ObjectRef, error: Exception) -> None:
        pass


class _SweepStopsAtError(Sweep):
    """One kind that cannot be listed ends the whole sweep."""

    async def _list_page(self, step: Any, queue: Any, work: Any) -> Any:
        before = len(work.failures)
        after = await super()._list_page(step, queue, work)
        return after.model_copy(update={"kinds": ()}) if len(work.failures) > before else after


class _SlowKindRepeated(Sweep):
    """A step whose time ends before it has tried all kinds is repeated as if it had."""

    async def _list(self, step: Any, queue: Any, work: Any) -> Any:
        rest = await super()._list(step, queue, work)
        work.failures *= len(step.kinds)
        return rest


class _SweepDeletesNothing(Sweep):
    async def _handle(self, rule: KindRule, found: Any, work: Any) -> None:
        pass


class _SlotsAsTokens(CheckedRestraints):
    """A delayed object is not remembered: when it comes back, it joins the end of the queue again."""

    async def ask(self, rule: KindRule, obj: dict[str, Any], *, by: str) -> Denied | Delayed | None:
        answer = await super().ask(rule, obj, by=by)
        self._budget._waiting.clear()
        return answer


class _PaidNever(CheckedRestraints):
    """Every deletion is given back, whatever became of it."""

    def deleted(self, obj: dict[str, Any]) -> None:
        super().deleted(obj)
        self._budget.give_back(ref_of(obj).namespace, self._monotonic())


def _mutant(*rules: str, **parts: Any) -> Mutant:
    return Mutant(rules=frozenset(rules), needs_policy=False, **parts)


NONE = Mutant()
MUTANTS: Mapping[str, Mutant] = {
    "none": NONE,
    "delete-without-version": _mutant("S2", cluster=_WithoutVersion),
    "delete-by-live-version": _mutant("S1", "S2", "S3", cluster=_LiveVersion),
    "delete-any-uid": _mutant("S2", cluster=_AnyUid),
    "delete-by-name": _mutant("S2", expiry=_ByNameOnly),
    "by-local-clock": _mutant("S1", cluster=_ByLocalClock),
    "one-second-early": _mutant("S1", cluster=_OneSecondEarly),
    "hold-ignored": _mutant("S3", cluster=_HoldIgnored),
    "malformed-ignored": _mutant("S3", cluster=_MalformedIgnored),
    "owner-ignored": _mutant("S3", cluster=_OwnerIgnored),
    "group-of-owner-ignored": _mutant("S3", evaluator=_GroupOfOwnerIgnored),
    "replaced-pods-kept": _mutant("L1", evaluator=_ReplacedKept),
    "event-trusted": _mutant("S1", "S3", expiry=_EventTrusted),
    "conflict-ignored": _mutant("S2", cluster=_ConflictIgnored),
    "recall-trusted": _mutant("L1", cluster=_RecallTrusted, needs_memory=True),
    "wait-forgotten": _mutant("L1", expiry=_WaitForgotten),
    "version-compared": _mutant("L1", "S3", "S3", cluster=_VersionCompared),
    "version-guessed": _mutant("L1", cluster=_VersionGuessed),
    "first-page-only": _mutant("L1", cluster=_FirstPageOnly),
    "sweep-does-nothing": _mutant("L1", sweep=_SweepDeletesNothing),
    "sweep-stops-at-error": _mutant("L1", sweep=_SweepStopsAtError),
    "forbidden-tried-again": _mutant("L2", "storm", cluster=_ForbiddenTriedAgain),
    "refusal-unreported": _mutant("L2", expiry=_Unreported),
    "hot-loop": _mutant("storm", expiry=_HotLoop),
}
BUDGET_MUTANTS: Mapping[str, Mutant] = {
    "never-paid": _mutant("rate", safeguards=_PaidNever),
    "place-in-the-line-forgotten": _mutant("L1", "storm", safeguards=_SlotsAsTokens),
}
"""Those that show only where there is a budget."""

SLOW_KIND_REPEATED = _mutant("L1", sweep=_SlowKindRepeated)
"""It shows only where the LISTs of a kind time out for ever."""
