"""`hold` and `release`: keep one object, and end that. Of a Secret or a ConfigMap, only metadata is read."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes.state_configmap import read_contents
from shared.cli.deleters.brakes import find_brake_namespaces, shared_state
from shared.cli.input.command import command
from shared.cli.input.options import Options, context_namespace_option, namespace_option, object_options, reason_option
from shared.cli.input.target import connected, split_target
from shared.cli.objects.edited_object import EditTarget, connected_target, describe_override, echo_change, echo_decision
from shared.cli.objects.object_report import describe_held_deadline
from shared.cli.objects.related import DeletingOwner, find_deleting_owners
from shared.cli.output.printing import echo
from shared.cli.usage.findings import find_usage_kind
from shared.cli.usage.usage_report import USAGE_WORDS
from shared.core.kinds.rule import KindRule
from shared.core.ttl import edits
from shared.core.ttl.ttl import advise_overridden, describe_overridden
from shared.core.usage.mark import hold_unused
from shared.core.usage.unused_reasons import UnusedReason
from shared.core.values.objects import get_annotations, printable
from shared.errors import TtlError
from shared.installation.place import HOME, RUN
from shared.safeguards.denials import release_breaker
from shared.safeguards.state_schema import StateContents
from shared.usecases.hold import Written, hold_object

if TYPE_CHECKING:
    from shared.adapters.kubernetes.cluster import KubernetesCluster

_TARGET = click.argument("target", nargs=-1, metavar="KIND/NAME")


@command()
@_TARGET
@reason_option("Why, for other users: shown by `explain`.")
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
            await _hold_usage(found, reason)
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
    "Default: the context's. With --breaker: $TTL_NAMESPACE, else the only namespace with an open breaker, among "
    f"{HOME}, {RUN}, and those of each `run`."
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
            await _release_usage(found)
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
    async with connected(options) as cluster:
        namespace = options.namespace or await _find_open_breaker(cluster)
        trip = await release_breaker(*shared_state(cluster, namespace))
    if trip is None:
        raise TtlError(f"no breaker is open in namespace {namespace}; for another namespace, set -n")
    echo(f"the breaker in namespace {namespace} is released; nothing was deleted {trip}")


async def _find_open_breaker(cluster: "KubernetesCluster") -> str:
    """Find the only namespace with an open breaker: a person decides about each breaker alone.

    If $TTL_NAMESPACE names a namespace, it is that one.

    Raises:
        TtlError: None is open, or several are, or a state or the list of Leases cannot be read.
    """
    if named := read_settings().home_namespace:
        return named
    found = await find_brake_namespaces(cluster, "")
    states = await asyncio.gather(*(read_contents(cluster, one) for one in found.namespaces), return_exceptions=True)
    by_name = dict(zip(found.namespaces, states, strict=True))
    opened = [name for name, state in by_name.items() if isinstance(state, StateContents) and state.trip]
    unread = [f"namespace {name}: {one}" for name, one in by_name.items() if isinstance(one, BaseException)]
    unread += [f"the Leases of each `run`: {found.problem}"] if found.problem else []
    places = ", ".join(opened) or "none"
    if unread:
        raise TtlError(
            f"not all breakers could be read; open: {places}; set -n to the namespace to release. "
            f"Not read: {printable('; '.join(unread))}"
        )
    if len(opened) > 1:
        raise TtlError(f"breakers are open in the namespaces {places}: set -n to one of them")
    if not opened:
        raise TtlError(f"no breaker is open in the namespaces {', '.join(by_name)}; for another one, set -n")
    return opened[0]


def _check_hold(written: Written, rule: KindRule, field: str, *, deleting_owners: Sequence[DeletingOwner]) -> None:
    """Check the stored object: a webhook or a default may have put a TTL field back.

    Raises:
        TtlError: The kind's own controller deletes the object despite the hold, or it is deleted with an owner.
    """
    if field:
        raise TtlError(_describe_overridden_hold(written, rule, field))
    _check_owners(deleting_owners)


def _check_owners(owners: Sequence[DeletingOwner]) -> None:
    """Raise an error if the object is deleted with an owner."""
    if owners:
        messages = "; ".join("; ".join(filter(None, (one.message, one.fix))) for one in owners)
        raise TtlError(printable(f"the hold has no effect: {messages}"))


def _describe_overridden_hold(written: Written, rule: KindRule, field: str) -> str:
    if written.refused:
        why = f"the API server rejects the removal of the field: {written.refused}"
    elif written.change and field in written.change.fields:
        why = "the field was removed, and was set again at once"
    else:
        why = advise_overridden(field)
    return f"the hold is overridden: {describe_overridden(written.snapshot.obj, rule, field)}; {why}"


async def _hold_usage(found: EditTarget, reason: str) -> None:
    """Hold a Secret or a ConfigMap.

    Raises:
        TtlError: The hold could not be written, or has no effect.
    """
    written = await found.write(lambda obj: hold_unused(obj, found.rule, reason))
    echo_change(f"{found.ref} is held: {reason}", written)
    await _check_usage_hold(await _read_again(found), found, reason)
    echo(f"kept ({UnusedReason.HELD}): {USAGE_WORDS[UnusedReason.HELD]}", indent=2)


async def _release_usage(found: EditTarget) -> None:
    """End the hold of a Secret or a ConfigMap.

    Raises:
        TtlError: The release could not be written.
    """
    written = await found.write(lambda obj: edits.release(obj, found.rule))
    echo_change(f"{found.ref} is {'released' if written.change else 'not held'}", written)
    name = " ".join((f"{found.rule.kind.lower()}/{found.ref.name}", "-n", found.ref.namespace, *found.force.flags))
    echo(printable(f"to see whether an object refers to it, run: kubectl ttl references {name}"), indent=2)


async def _read_again(found: EditTarget) -> Any:
    """Read the metadata after the write: its answer has no object."""
    snapshot = await found.cluster.get(found.rule, found.ref)
    if snapshot is None:
        raise TtlError(f"{found.ref} was deleted when its hold was written")
    return snapshot.obj


async def _check_usage_hold(obj: Any, found: EditTarget, reason: str) -> None:
    """Check the stored object: a webhook may have removed the hold, and an owner is deleted with its dependents.

    Raises:
        TtlError: The hold has no effect.
    """
    if "hold" not in get_annotations(obj):
        raise TtlError(f"the hold has no effect: its annotation was removed from {found.ref} at once")
    _check_owners(await find_deleting_owners(obj, found.evaluator, reason=reason, flags=found.force.flags))
