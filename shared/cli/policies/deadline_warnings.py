"""Warnings about the deadlines of a new policy: where a rule that sets one stops no object, or stops it earlier."""

from collections import Counter
from collections.abc import Iterator

from shared.cli.policies.comparison import Comparison
from shared.core.deadlines.deadline import Stage
from shared.core.decide import Reason
from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import Policy


def describe_deadlines(comparison: Comparison, policy: Policy) -> Iterator[str]:
    """Say which rules of the new policy set a deadline that has no effect, or not the effect that the rule names."""
    yield from _describe_unstoppable(comparison)
    yield from _describe_opt_in(comparison, policy)
    yield from _describe_shortened(comparison)
    used = {
        (active.deadline.source, active.stage)
        for active in (one.stops[1].facts.active for one in comparison.objects)
        if active.deadline
    }
    for rule in policy.rules:
        if Stage.ACTIVE in rule.deadlines and (rule.source, Stage.ACTIVE) not in used:
            yield f"no running object gets its deadline from {rule.source}"


def _describe_unstoppable(comparison: Comparison) -> Iterator[str]:
    """The kinds that have no way to stop an object, by the rule that sets a deadline for them."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in comparison.objects:
        stop = one.stops[1]
        deadline = stop.facts.active.deadline
        if stop.reason is Reason.CANNOT_STOP and deadline and deadline.origin == "policy":
            counts[deadline.source, one.rule.name, stop.facts.problem] += 1
    for (source, kind, problem), count in counts.items():
        yield f"{source} sets a deadline for {count:,} {kind}, which are not stopped: {problem}"


def _describe_opt_in(comparison: Comparison, policy: Policy) -> Iterator[str]:
    """The opt-in kinds for which a rule sets no deadline because it matches them by a glob."""
    kinds: dict[str, KindRule] = {one.rule.name: one.rule for one in comparison.objects if one.rule.opt_in}
    for kind in kinds.values():
        for one in policy.candidates(kind):
            if one.rule.sets_deadline and not one.rule.match.names(kind):
                yield f"{one.rule.source} sets no deadline for {kind.name}, an opt-in kind: name it in match.kinds"


def _describe_shortened(comparison: Comparison) -> Iterator[str]:
    """The namespaces whose maximum shortens the deadline of a rule."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in comparison.objects:
        active = one.stops[1].facts.active
        if active.moved_by and active.deadline and active.deadline.origin == "policy":
            counts[active.deadline.source, one.ref.namespace] += 1
    for (source, namespace), count in counts.items():
        shortened = f"max-active-deadline of namespace {namespace} shortens the deadline"
        yield f"{shortened} of {source} for {count:,} {'object' if count == 1 else 'objects'}"
