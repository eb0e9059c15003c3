"""What `hold`, `release` and `set` print about a change of an object: its annotations and the decision that follows."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.cli.deleters.in_force import InForce, PolicyInForce, read_in_force
from shared.cli.deleters.obstacles import find_obstacles
from shared.cli.objects.object_report import describe_fate, is_ahead
from shared.cli.objects.related import DeletingOwner
from shared.cli.options.target import find_rule, parse_target, ref_to, split_target
from shared.cli.output.width import echo
from shared.cli.process.connection import connected, context_namespace
from shared.core.decide import Decision
from shared.core.kinds.rule import KindRule
from shared.core.objects import ANNOTATION_DOMAIN, ObjectRef, printable
from shared.core.ttl import edits
from shared.core.ttl.overridden import advise_overridden, describe_overridden
from shared.errors import TtlError
from shared.evaluation.evaluator import Evaluator
from shared.usecases.hold import Written


@dataclass(frozen=True, slots=True)
class Target:
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


@asynccontextmanager
async def connected_target(
    words: tuple[str, ...],
    namespace: str | None,
    kinds_dir: Path | None,
    policy: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> AsyncIterator[Target]:
    """Connect to the cluster, and find the object that the arguments and options name."""
    split_target(words)
    async with connected(kubeconfig, context) as cluster:
        force = await read_in_force(cluster, kinds_dir, kubeconfig=kubeconfig, context=context)
        chosen = force.choose(policy)
        rules, name = parse_target(words, force.kinds)
        rule = await find_rule(cluster, rules, words[0])
        ref = ref_to(rule, namespace or context_namespace(kubeconfig, context), name)
        evaluator = Evaluator(cluster, force.kinds, lambda: chosen.policy)
        yield Target(cluster, force, chosen, rule, ref, evaluator)


def describe_annotations(written: Written, ref: ObjectRef) -> str:
    """Name the annotations that `set` wrote or removed."""
    if written.change is None:
        return f"{ref}: nothing to unset"
    values = {name: value for name, value in written.change.annotations.items() if value is not None}
    if not values:
        removed = ", ".join(f"{ANNOTATION_DOMAIN}/{name}" for name in written.change.annotations)
        return f"{ref}: removed {removed}"
    return f"{ref}: set " + ", ".join(f"{ANNOTATION_DOMAIN}/{name}: {value}" for name, value in values.items())


def echo_messages(written: Written) -> None:
    """Print the messages of a change."""
    for sentence in written.change.message if written.change else ():
        echo(printable(sentence), indent=2)


def echo_decision(decision: Decision, written: Written, target: Target) -> None:
    """Print the decision about the changed object, the policy that applies, and what prevents the deletion."""
    now = written.snapshot.read_at
    echo(describe_fate(decision, now), indent=2)
    if target.chosen.name or not target.chosen.is_known:
        echo(f"policy: {printable(target.chosen.message)}", indent=2)
    if target.rule.opt_in and is_ahead(decision):
        echo(f"note: {target.rule.opt_in}", indent=2)
    for one in find_obstacles(target.force, target.ref, target.rule, decision, now):
        echo(f"note: {printable(one.message)}; {one.cure}", indent=2)


async def describe_maximum(wish: str, decision: Decision, target: Target) -> str:
    """Say how max-ttl of the namespace shortens a TTL; the decision itself reports a namespace that cannot be read."""
    with suppress(TtlError):
        name = target.ref.namespace
        namespace = await target.evaluator.namespaces.get(name) if name else None
        if namespace is not None:
            return edits.describe_maximum(wish, namespace.max_ttl, decision.facts.finish.at)
    return ""


def describe_override(decision: Decision, written: Written, rule: KindRule) -> str:
    """Say which field the kind's own controller acts on earlier, and what to do; an empty text if there is none."""
    field = decision.facts.overridden
    return f"{describe_overridden(written.snapshot.obj, rule, field)}; {advise_overridden(field)}" if field else ""


def check_hold(written: Written, rule: KindRule, field: str, deleting_owners: Sequence[DeletingOwner]) -> None:
    """Check the stored object: a webhook or a default may have put a TTL field back.

    Raises:
        TtlError: The kind's own controller deletes the object despite the hold, or it is deleted with an owner.
    """
    if field:
        raise TtlError(_describe_overridden_hold(written, rule, field))
    if deleting_owners:
        owners = "; ".join("; ".join(filter(None, (one.message, one.fix))) for one in deleting_owners)
        raise TtlError(printable(f"the hold has no effect: {owners}"))


def _describe_overridden_hold(written: Written, rule: KindRule, field: str) -> str:
    if written.refused:
        why = f"the API server rejects the removal of the field: {written.refused}"
    elif written.change and field in written.change.fields:
        why = "the field was removed, and was set again at once"
    else:
        why = advise_overridden(field)
    return f"the hold is overridden: {describe_overridden(written.snapshot.obj, rule, field)}; {why}"
