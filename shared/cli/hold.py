"""`hold` and `release`: keep one object, and end that."""

from collections.abc import Sequence

import click

from shared.adapters.kubernetes.state_configmap import release as release_breaker
from shared.cli.input.command import command
from shared.cli.input.options import Options, context_namespace_option, home_namespace, namespace_option, object_options
from shared.cli.input.target import connected, split_target
from shared.cli.objects.deadline_report import describe_held_deadline
from shared.cli.objects.edited_object import connected_target, describe_override, echo_decision
from shared.cli.objects.related import DeletingOwner, find_deleting_owners
from shared.cli.output.width import echo
from shared.cli.usage.findings import find_usage_kind
from shared.cli.usage.holding import hold_usage, release_usage
from shared.core.kinds.rule import KindRule
from shared.core.objects import printable
from shared.core.ttl import edits
from shared.core.ttl.ttl import advise_overridden, describe_overridden
from shared.errors import TtlError
from shared.installation.defaults import HOME, RUN
from shared.usecases.hold import Written, hold_object

_TARGET = click.argument("target", nargs=-1, metavar="KIND/NAME")


@command()
@_TARGET
@click.option("--reason", required=True, metavar="WHY", help="Why, for other users: shown by `explain`.")
@context_namespace_option
@object_options
async def hold(options: Options, *, target: tuple[str, ...], reason: str) -> None:
    """Keep an object until it is released, even if its TTL expires or its deadline is over.

    If the kind's own controller acts on a TTL field of the object, as kube-controller-manager does for a Job, the
    field is removed until the release.

    A Secret or a ConfigMap is kept even if nothing refers to it. Its data is not read.
    """
    usage_kind = _usage_kind_of(target)
    async with connected_target(target, options, rule=usage_kind) as found:
        if usage_kind is not None:
            await hold_usage(found, reason)
            return
        written = await hold_object(found.rule, found.ref, reason, editor=found.cluster)
        decision = await found.report(f"{found.ref} is held: {reason}", written)
        stop = (await found.evaluator.evaluate_stop(written.snapshot, found.rule)).decision
        if about_deadline := describe_held_deadline(stop):
            echo(printable(about_deadline), indent=2)
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
    usage_kind = _usage_kind_of(target)
    async with connected_target(target, options, rule=usage_kind) as found:
        if usage_kind is not None:
            await release_usage(found)
            return
        written = await found.write(lambda obj: edits.release(obj, found.rule))
        decision = await found.report(f"{found.ref} is {'released' if written.change else 'not held'}", written)
        echo_decision(decision, written, found)
        if overridden := describe_override(decision, written, found.rule):
            echo(f"note: {overridden}", indent=2)


def _usage_kind_of(target: tuple[str, ...]) -> KindRule | None:
    """The rule of Secrets or of ConfigMaps, if the arguments name one; its data is never read."""
    word, _ = split_target(target)
    return find_usage_kind(word)


async def _release_breaker(options: Options) -> None:
    namespace = options.namespace or home_namespace()
    async with connected(options) as cluster:
        trip = await release_breaker(cluster, namespace)
    if trip is None:
        home = home_namespace()
        elsewhere = f"for an installation, set -n {home}" if namespace == RUN else f"for a `run`, set -n {RUN}"
        raise TtlError(f"no breaker is open in namespace {namespace}; {elsewhere}")
    echo(f"the breaker in namespace {namespace} is released; nothing was deleted {trip}")


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
