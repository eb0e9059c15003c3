"""`hold`, `release` and `set`: change the hold or the TTL of one object."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import click

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.state_configmap import release as release_breaker
from shared.cli.deleters.in_force import InForce, PolicyInForce, read_in_force
from shared.cli.deleters.obstacles import find_obstacles
from shared.cli.input.command import command
from shared.cli.input.options import Options, context_namespace_option, home_namespace, namespace_option, object_options
from shared.cli.input.target import connected, find_rule, namespace_of, parse_target, ref_to, split_target
from shared.cli.objects.object_report import describe_fate, is_ahead
from shared.cli.objects.related import DeletingOwner, find_deleting_owners
from shared.cli.output.width import echo
from shared.core.decide import Decision
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.objects import ANNOTATION_DOMAIN, ObjectRef, printable
from shared.core.ttl import edits
from shared.core.ttl.ttl import advise_overridden, describe_overridden
from shared.errors import TtlError
from shared.evaluation.evaluator import Evaluator
from shared.installation.defaults import HOME, RUN
from shared.usecases.hold import FindEdit, Written, hold_object, write

_TARGET = click.argument("target", nargs=-1, metavar="KIND/NAME")


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

    async def write(self, find_edit: FindEdit) -> Written:
        """Write an edit of the object.

        Raises:
            TtlError: As for `shared.usecases.hold.write`.
        """
        return await write(self.rule, self.ref, find_edit, editor=self.cluster)

    async def report(self, change: str, written: Written) -> Decision:
        """Print the change and its messages; return the decision about the changed object."""
        echo(change)
        for sentence in written.change.message if written.change else ():
            echo(printable(sentence), indent=2)
        return await self.evaluator.decide(written.snapshot, self.rule)


@asynccontextmanager
async def _connected_target(words: tuple[str, ...], options: Options) -> AsyncIterator[Target]:
    """Connect to the cluster, and find the object that the arguments and options name."""
    split_target(words)
    async with connected(options) as cluster:
        force = await read_in_force(cluster, options)
        chosen = force.choose(options.policy)
        rules, name = parse_target(words, force.kinds)
        rule = await find_rule(cluster, rules, words[0])
        ref = ref_to(rule, namespace_of(options), name)
        evaluator = Evaluator(cluster, force.kinds, lambda: chosen.policy)
        yield Target(cluster, force, chosen, rule, ref, evaluator)


@command()
@_TARGET
@click.option("--reason", required=True, metavar="WHY", help="Why, for other users: shown by `explain`.")
@context_namespace_option
@object_options
async def hold(options: Options, *, target: tuple[str, ...], reason: str) -> None:
    """Keep an object until it is released, even if its TTL expires.

    If the kind's own controller acts on a TTL field of the object, as kube-controller-manager does for a Job, the
    field is removed until the release.
    """
    async with _connected_target(target, options) as found:
        written = await hold_object(found.rule, found.ref, reason, editor=found.cluster)
        decision = await found.report(f"{found.ref} is held: {reason}", written)
        deleting_owners = await find_deleting_owners(
            written.snapshot.obj, found.evaluator, reason=reason, flags=found.force.flags
        )
        _check_hold(written, found.rule, decision.facts.overridden, deleting_owners=deleting_owners)


@command()
@_TARGET
@click.option("--breaker", is_flag=True, help="Instead: release a breaker that tripped.")
@namespace_option(
    f"Default: the context's; with --breaker, $TTL_NAMESPACE, else {HOME}. For `run`: its --lease-namespace."
)
@object_options
async def release(options: Options, *, target: tuple[str, ...], breaker: bool) -> None:
    """End a hold: the TTL of the object applies again. With --breaker: release the breaker instead."""
    if breaker:
        if target:
            raise click.UsageError("expected either KIND/NAME or --breaker, got both")
        await _release_breaker(options)
        return
    async with _connected_target(target, options) as found:
        written = await found.write(lambda obj: edits.release(obj, found.rule))
        decision = await found.report(f"{found.ref} is {'released' if written.change else 'not held'}", written)
        _echo_decision(decision, written, found)
        if overridden := _describe_override(decision, written, found.rule):
            echo(f"note: {overridden}", indent=2)


@command("set")
@click.argument("words", nargs=-1, metavar="KIND/NAME TIME")
@click.option("--succeeded", is_flag=True, help="Only if it succeeds.")
@click.option("--failed", is_flag=True, help="Only if it fails.")
@click.option("--unset", is_flag=True, help="Without TIME: remove the TTL annotations.")
@context_namespace_option
@object_options
async def set_ttl(options: Options, *, words: tuple[str, ...], succeeded: bool, failed: bool, unset: bool) -> None:
    """Set the TTL of an object: how long it is kept after it finishes.

    TIME is a duration (3600, 90s, 1h30m, 2d), `never`, or an instant (2026-01-02T03:04:05Z).
    """
    target, wish = (words, "") if unset else (words[:-1], words[-1] if words else "")
    if not target or len(target) > 2 or (unset and len(target) == 2 and "/" in target[0]):  # noqa: PLR2004 - KIND NAME
        raise click.UsageError("expected KIND/NAME TIME, for instance job/backup 1h, or KIND/NAME --unset")
    if succeeded and failed:
        raise click.UsageError("expected one of --succeeded and --failed, or neither, which means both")
    of = Outcome.SUCCEEDED if succeeded else Outcome.FAILED if failed else None
    if not unset:
        _check_ttl(wish, of)
    async with _connected_target(target, options) as found:
        written = await found.write(
            lambda obj: edits.unset_ttl(obj, of) if unset else edits.set_ttl(obj, found.rule, wish, outcome=of)
        )
        decision = await found.report(_describe_annotations(written, found.ref), written)
        _echo_decision(decision, written, found)
        if shorter := not unset and await _describe_maximum(wish, decision, found):
            echo(f"note: {shorter}", indent=2)
        if overridden := _describe_override(decision, written, found.rule):
            raise TtlError(f"this TTL is overridden: {overridden}")


def _check_ttl(wish: str, of: Outcome | None) -> None:
    """Check TIME before the command connects to a cluster.

    Raises:
        BadParameter: It is no TTL, or does not fit the outcome.
    """
    try:
        edits.check_ttl(wish, of)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="TIME") from None


async def _release_breaker(options: Options) -> None:
    namespace = options.namespace or home_namespace()
    async with connected(options) as cluster:
        trip = await release_breaker(cluster, namespace)
    if trip is None:
        home = home_namespace()
        elsewhere = f"for an installation, set -n {home}" if namespace == RUN else f"for a `run`, set -n {RUN}"
        raise TtlError(f"no breaker is open in namespace {namespace}; {elsewhere}")
    echo(f"the breaker in namespace {namespace} is released; nothing was deleted {trip}")


def _describe_annotations(written: Written, ref: ObjectRef) -> str:
    """Name the annotations that `set` wrote or removed."""
    if written.change is None:
        return f"{ref}: nothing to unset"
    values = {name: value for name, value in written.change.annotations.items() if value is not None}
    if not values:
        removed = ", ".join(f"{ANNOTATION_DOMAIN}/{name}" for name in written.change.annotations)
        return f"{ref}: removed {removed}"
    return f"{ref}: set " + ", ".join(f"{ANNOTATION_DOMAIN}/{name}: {value}" for name, value in values.items())


def _echo_decision(decision: Decision, written: Written, target: Target) -> None:
    """Print the decision about the changed object, the policy that applies, and what prevents the deletion."""
    now = written.snapshot.read_at
    echo(describe_fate(decision, now), indent=2)
    if target.chosen.name or not target.chosen.is_known:
        echo(f"policy: {printable(target.chosen.message)}", indent=2)
    if target.rule.opt_in and is_ahead(decision):
        echo(f"note: {target.rule.opt_in}", indent=2)
    for one in find_obstacles(target.force, target.ref, target.rule, decision=decision, now=now):
        echo(f"note: {printable(one.message)}; {one.cure}", indent=2)


async def _describe_maximum(wish: str, decision: Decision, target: Target) -> str:
    """Say how max-ttl of the namespace shortens a TTL; the decision itself reports a namespace that cannot be read."""
    with suppress(TtlError):
        name = target.ref.namespace
        namespace = await target.evaluator.namespaces.get(name) if name else None
        if namespace is not None:
            return edits.describe_maximum(wish, namespace.max_ttl, decision.facts.finish.at)
    return ""


def _describe_override(decision: Decision, written: Written, rule: KindRule) -> str:
    """Say which field the kind's own controller acts on earlier, and what to do; an empty text if there is none."""
    field = decision.facts.overridden
    return f"{describe_overridden(written.snapshot.obj, rule, field)}; {advise_overridden(field)}" if field else ""


def _check_hold(written: Written, rule: KindRule, field: str, *, deleting_owners: Sequence[DeletingOwner]) -> None:
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
