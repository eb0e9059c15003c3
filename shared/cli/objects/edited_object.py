"""The object that `hold`, `release` or `set` changes, and the report about it after the change."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.cli.deleters.in_force import InForce, PolicyInForce, opened_archives, read_in_force
from shared.cli.deleters.obstacles import find_obstacles
from shared.cli.input.options import Options
from shared.cli.input.target import connected, find_rule, namespace_of, parse_target, ref_to, split_target
from shared.cli.objects.object_report import describe_fate, is_ahead
from shared.cli.output.printing import echo
from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Decision
from shared.core.kinds.rule import KindRule
from shared.core.ttl.ttl import advise_overridden, describe_overridden
from shared.core.values.objects import ObjectRef, printable
from shared.evaluation.evaluator import Evaluator
from shared.usecases.hold import FindEdit, Written, write


@dataclass(frozen=True, slots=True)
class EditTarget:
    """The object that a command changes, and its cluster.

    Attributes:
        cluster: The cluster.
        force: What is in force on the cluster.
        chosen: The policy that applies to the object.
        rule: The rule of its kind.
        ref: The object.
        evaluator: Decides about the object after the change.
    """

    cluster: KubernetesCluster
    force: InForce
    chosen: PolicyInForce
    rule: KindRule
    ref: ObjectRef
    evaluator: Evaluator

    async def write(self, find_edit: FindEdit) -> Written:
        """Write an edit of the object.

        Raises:
            TtlError: As for `shared.usecases.hold.write`.
        """
        return await write(self.rule, self.ref, find_edit, editor=self.cluster)

    async def report(self, change: str, written: Written) -> Decision:
        """Print the change and its messages; return the decision about the changed object."""
        echo_change(change, written)
        return await self.evaluator.decide(written.snapshot, self.rule)


@asynccontextmanager
async def connected_target(
    words: tuple[str, ...], options: Options, *, rule: KindRule | None = None
) -> AsyncIterator[EditTarget]:
    """Connect to the cluster, and find the object that the arguments and options name.

    Args:
        words: The arguments.
        options: The options.
        rule: The rule of a kind that never finishes; None to find the kind by the arguments.
    """
    _, name = split_target(words)
    async with connected(options) as cluster:
        force = await read_in_force(cluster, options)
        chosen = force.choose(options.policy)
        if rule is None:
            rules, _ = parse_target(words, force.kinds)
            rule = await find_rule(cluster, rules, words[0])
        ref = ref_to(rule, namespace_of(options), name)
        async with opened_archives(force, chosen) as archives:
            evaluator = Evaluator(cluster, force.kinds, lambda: chosen.policy, archives=archives, enabled=force.enabled)
            yield EditTarget(cluster, force, chosen, rule, ref, evaluator)


def echo_change(change: str, written: Written) -> None:
    """Print the change and its messages."""
    echo(printable(change))
    for sentence in written.change.message if written.change else ():
        echo(printable(sentence), indent=2)


def echo_decision(decision: Decision, written: Written, target: EditTarget) -> None:
    """Print the decision about the changed object, the policy that applies, and what prevents the deletion."""
    now = written.snapshot.read_at
    echo(describe_fate(decision, now), indent=2)
    if target.chosen.name or not target.chosen.is_known:
        echo(f"policy: {printable(target.chosen.message)}", indent=2)
    if target.rule.opt_in and is_ahead(decision):
        echo(f"note: {target.rule.opt_in}", indent=2)
    echo_obstacles(decision, written, target)


def echo_obstacles(decision: Decision | StopDecision, written: Written, target: EditTarget) -> None:
    """Print what prevents the deletion or the stop of the changed object."""
    now = written.snapshot.read_at
    for one in find_obstacles(target.force, target.ref, target.rule, decision=decision, now=now):
        echo(f"note: {printable(one.message)}; {one.cure}", indent=2)


def describe_override(decision: Decision, written: Written, rule: KindRule) -> str:
    """Say which field the kind's own controller acts on earlier, and what to do; an empty text if there is none."""
    field = decision.facts.overridden
    return f"{describe_overridden(written.snapshot.obj, rule, field)}; {advise_overridden(field)}" if field else ""
