"""Systems with one deliberate mistake each about policies, namespaces or ranks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from shared.adapters.config.policy_file import PolicyFile
from shared.core.decision.decide import Expire, Wait
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.policy.matching import NAMESPACE, OutcomeTtl, PolicyExpression, Subject
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.policy.policy_rule import PolicyRule
from shared.core.values.expressions import ExpressionError
from shared.evaluation.evaluator import Evaluation
from shared.evaluation.namespaces_and_owners import Namespaces
from shared.evaluation.ranks import Rank, Ranks
from shared.ports import Snapshot
from shared.usecases.handler import Decided, Handler
from tests.simulation.evaluators import RecordingEvaluator
from tests.simulation.mutants import Mutant
from tests.simulation.simcluster import SimCluster

# Policies that are not taken for what they say.


class _Misread(PolicyFile):
    """Each is taken for another."""

    def policy(self) -> Policy:
        read = super().policy()
        if getattr(self, "_of", None) is not read:
            self._of, self._taken = read, read.model_copy(update={"rules": self.taken(read.rules)})
        return self._taken

    def taken(self, rules: tuple[PolicyRule, ...]) -> tuple[PolicyRule, ...]:
        return rules


def misread(**changes: Callable[[PolicyRule], Any]) -> type[PolicyFile]:
    """Some fields of each rule are taken for something else."""

    class Misread(_Misread):
        def taken(self, rules: tuple[PolicyRule, ...]) -> tuple[PolicyRule, ...]:
            return tuple(
                rule.model_copy(update={name: change(rule) for name, change in changes.items()}) for rule in rules
            )

    return Misread


class LastFirst(_Misread):
    def taken(self, rules: tuple[PolicyRule, ...]) -> tuple[PolicyRule, ...]:
        return rules[::-1]


class ReadOnce(PolicyFile):
    def policy(self) -> Policy:
        return self._policy


class BadIsNone(PolicyFile):
    """Instead of a bad file nothing is in force."""

    def policy(self) -> Policy:
        policy = super().policy()
        return policy if self.is_good else NO_POLICY


@dataclass(frozen=True, slots=True)
class _Lenient(PolicyExpression):
    def of(self, subject: Subject) -> Any:
        try:
            return super(_Lenient, self).of(subject)
        except ExpressionError:
            return False


def _lenient(rule: PolicyRule) -> Any:
    return _Lenient(rule.when.text, rule.when.expression) if rule.when else None


def _swapped(rule: PolicyRule) -> Any:
    other = {Outcome.SUCCEEDED: Outcome.FAILED, Outcome.FAILED: Outcome.SUCCEEDED, None: None}
    return rule.ttl and OutcomeTtl(tuple((other[outcome], after) for outcome, after in rule.ttl.by_outcome))


AgeIgnored = misread(match=lambda rule: rule.match.model_copy(update={"age": None}))
LabelsIgnored = misread(match=lambda rule: rule.match.model_copy(update={"labels": None}))
PlacesIgnored = misread(match=lambda rule: rule.match.model_copy(update={"namespaces": None}))
OwnersIgnored = misread(match=lambda rule: rule.match.model_copy(update={"owners": None}))
WhenIgnored = misread(when=lambda _: None)
UnreadableIsFalse = misread(when=_lenient)
OutcomesSwapped = misread(ttl=_swapped)
MinAgeIgnored = misread(min_age=lambda _: None)
GroupIgnored = misread(keep_last_by=lambda _: NAMESPACE)
CountGroupIgnored = misread(count_by=lambda _: NAMESPACE)
FailedIgnored = misread(keep_last_failed=lambda rule: None if rule.keep_last else rule.keep_last_failed)
OutcomesTogether = misread(keep_last_outcomes=lambda _: "together")
OutcomesApart = misread(keep_last_outcomes=lambda _: "apart")
OnOwnedInverted = misread(on_owned=lambda rule: "keep" if rule.on_owned == "delete" else "delete")


# Ranks.


class _OffByOne(Ranks):
    by = 1

    async def rank(self, *about: Any) -> Rank:
        rank = await super().rank(*about)
        return replace(rank, newer=rank.newer + self.by)


class _OffByOneMore(_OffByOne):
    by = -1


class _CountOffByOne(Ranks):
    by = 1

    async def rank(self, *about: Any) -> Rank:
        rank = await super().rank(*about)
        return replace(rank, counted=replace(rank.counted, newer=rank.counted.newer + self.by))


class _CountOffByOneMore(_CountOffByOne):
    by = -1


class _PressNone(Ranks):
    """No object goes before its time."""

    async def press(self, *about: Any) -> Any:
        pressure, leaving = await super().press(*about)
        return replace(pressure, older=None), leaving


class _Remembered(Ranks):
    """A LIST is good for ever."""

    async def _listed(self, mine: Any, rule: KindRule, context: Any, *about: Any) -> Any:
        key = rule.api_version, rule.kind, mine.ref.namespace
        listed = self._lists.get(key)
        return (
            listed if listed and listed.policy is context.policy else await super()._listed(mine, rule, context, *about)
        )


class _ListForgotten(Ranks):
    """No LIST is good for a second read."""

    def _remember(self, *_about: Any) -> None:
        pass


class _NamespaceRemembered(Namespaces):
    """What a namespace once said is good for ever."""

    def _cached(self, name: str) -> Any:
        return self._known.get(name)

    async def prime(self) -> None:
        pass


def _evaluator(ranks: type[Ranks] = Ranks, namespaces: type[Namespaces] = Namespaces) -> type[RecordingEvaluator]:
    class Mutated(RecordingEvaluator):
        def __post_init__(self, telemetry: Any, only: str) -> None:
            super().__post_init__(telemetry, only)
            self.ranks = ranks(self.cluster, self.owners, self.ttl_sources)
            self.namespaces = namespaces(self.cluster, telemetry, only)

    return Mutated


RankTooHigh = _evaluator(_OffByOne)
RankTooLow = _evaluator(_OffByOneMore)
QuotaIgnored = _evaluator(_PressNone)
CountTooHigh = _evaluator(_CountOffByOne)
CountTooLow = _evaluator(_CountOffByOneMore)
RankRemembered = _evaluator(_Remembered)
ListForgotten = _evaluator(_ListForgotten)
NamespaceRemembered = _evaluator(namespaces=_NamespaceRemembered)


# Instants.


class MinAgeOfPoliciesOnly(RecordingEvaluator):
    """A rule's minimum age does not hold for what says itself when it goes."""

    async def evaluate(self, snapshot: Snapshot, rule: KindRule) -> Evaluation:
        evaluation = await super().evaluate(snapshot, rule)
        decision = evaluation.decision
        if isinstance(decision, Wait) and decision.facts.ttl and decision.facts.ttl.origin == "object":
            due_at = decision.facts.ttl.due_at(decision.facts.finish.at)
            if due_at is not None and due_at <= snapshot.read_at:
                return replace(evaluation, decision=Expire(due_at, decision.reason, decision.facts))
        return evaluation


class JitterNegative(RecordingEvaluator):
    """What is spread out begins before it is due."""

    async def evaluate(self, snapshot: Snapshot, rule: KindRule) -> Evaluation:
        evaluation = await super().evaluate(snapshot, rule)
        decision = evaluation.decision
        policy_rule = decision.facts.policy_rule
        if (
            isinstance(decision, Wait)
            and policy_rule
            and policy_rule.jitter
            and decision.until - policy_rule.jitter < snapshot.read_at
        ):
            return replace(evaluation, decision=Expire(snapshot.read_at, decision.reason, decision.facts))
        return evaluation


class DecidedOnce(RecordingEvaluator):
    """Whatever is said while a slow read is on its way comes too late."""

    def is_still_due(self, *_about: Any) -> bool:
        return True


class JitterAnew(Handler):
    """Its turn has come, and is put off to the next."""

    async def _carry_out(self, decided: Decided) -> Any:
        return await super()._carry_out(replace(decided, missed_before=datetime.max.replace(tzinfo=UTC)))


# Namespaces.


def _deaf(annotation: str) -> type[SimCluster]:
    class Deaf(SimCluster):
        def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
            if obj["kind"] != "Namespace":
                return obj
            said = obj["metadata"].get("annotations", {})
            rest = {name: text for name, text in said.items() if not name.endswith(f"/{annotation}")}
            return obj | {"metadata": obj["metadata"] | {"annotations": rest}}

    return Deaf


ExemptIgnored = _deaf("exempt")
MaximumIgnored = _deaf("max-ttl")


def _mutant(*rules: str, **parts: Any) -> Mutant:
    return Mutant(rules=frozenset(rules), needs_policy=True, **parts)


POLICY_MUTANTS: Mapping[str, Mutant] = {
    "policy-read-once": _mutant("S1", "S3", "L1", policies=ReadOnce),
    "bad-policy-for-none": _mutant("S1", "S3", policies=BadIsNone),
    "last-rule-first": _mutant("S1", "S3", "L1", policies=LastFirst),
    "age-ignored": _mutant("S1", "S3", policies=AgeIgnored),
    "labels-ignored": _mutant("S1", "S3", policies=LabelsIgnored),
    "namespaces-ignored": _mutant("S1", "S3", policies=PlacesIgnored),
    "owners-ignored": _mutant("S1", "S3", policies=OwnersIgnored),
    "when-ignored": _mutant("S1", "S3", policies=WhenIgnored),
    "unreadable-for-false": _mutant("S1", "S3", policies=UnreadableIsFalse),
    "outcomes-swapped": _mutant("S1", "S3", "L1", policies=OutcomesSwapped),
    "min-age-ignored": _mutant("S1", policies=MinAgeIgnored),
    "min-age-not-of-annotations": _mutant("S1", evaluator=MinAgeOfPoliciesOnly),
    "on-owned-inverted": _mutant("S3", "L1", policies=OnOwnedInverted),
    "group-ignored": _mutant("S3", policies=GroupIgnored),
    "failed-ignored": _mutant("S3", "L1", policies=FailedIgnored),
    "outcomes-together": _mutant("S3", policies=OutcomesTogether),
    "outcomes-apart": _mutant("L1", policies=OutcomesApart),
    "rank-one-too-high": _mutant("S3", evaluator=RankTooHigh),
    "rank-one-too-low": _mutant("L1", evaluator=RankTooLow),
    "quota-ignored": _mutant("L1", evaluator=QuotaIgnored),
    "count-one-too-high": _mutant("S1", "S3", evaluator=CountTooHigh),
    "count-one-too-low": _mutant("L1", needs_max_count=True, evaluator=CountTooLow),
    "count-group-ignored": _mutant("S1", "S3", policies=CountGroupIgnored),
    "rank-remembered": _mutant("S3", evaluator=RankRemembered),
    "list-forgotten": _mutant("S4", evaluator=ListForgotten),
    "namespace-remembered": _mutant("S3", evaluator=NamespaceRemembered),
    "exempt-ignored": _mutant("S3", cluster=ExemptIgnored),
    "maximum-ignored": _mutant("L1", cluster=MaximumIgnored),
    "jitter-negative": _mutant("S1", evaluator=JitterNegative),
    "jitter-anew": _mutant("L1", expiry=JitterAnew),
}
"""Those that show only where there is a policy."""

DECIDED_ONCE = _mutant("S1", "S3", evaluator=DecidedOnce)
"""It shows only where something slow stands between the decision and the DELETE, too."""
