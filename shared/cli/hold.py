"""`hold`, `release` and `set`: change the hold or the TTL of one object."""

from pathlib import Path

import click

from shared.adapters.kubernetes.state_configmap import release as release_breaker
from shared.cli.objects.change import (
    check_hold,
    connected_target,
    describe_annotations,
    describe_maximum,
    describe_override,
    echo_decision,
    echo_messages,
)
from shared.cli.objects.related import find_deleting_owners
from shared.cli.options.click_options import cluster_options, kinds_dir_option, namespace_option, policy_in_force_option
from shared.cli.options.scope import command, namespace_name
from shared.cli.options.values import home_namespace
from shared.cli.output.width import echo
from shared.cli.process.asynchronous import asynchronous
from shared.cli.process.connection import connected
from shared.core.kinds.rule import Outcome
from shared.core.ttl import edits
from shared.errors import TtlError
from shared.installation.defaults import HOME, RUN
from shared.usecases.hold import hold_object, write

_TARGET = click.argument("target", nargs=-1, metavar="KIND/NAME")


@command()
@_TARGET
@click.option("--reason", required=True, metavar="WHY", help="Why, for other users: shown by `explain`.")
@namespace_option
@kinds_dir_option
@policy_in_force_option
@cluster_options
@asynchronous
async def hold(
    target: tuple[str, ...],
    reason: str,
    namespace: str | None,
    kinds_dir: Path | None,
    policy: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Keep an object until it is released, even if its TTL expires.

    If the kind's own controller acts on a TTL field of the object, as kube-controller-manager does for a Job, the
    field is removed until the release.
    """
    async with connected_target(target, namespace, kinds_dir, policy, kubeconfig, context) as found:
        written = await hold_object(found.rule, found.ref, reason, editor=found.cluster)
        echo(f"{found.ref} is held: {reason}")
        echo_messages(written)
        decision = await found.evaluator.decide(written.snapshot, found.rule)
        deleting_owners = await find_deleting_owners(
            written.snapshot.obj, found.evaluator, reason=reason, flags=found.force.flags
        )
        check_hold(written, found.rule, decision.facts.overridden, deleting_owners)


@command()
@_TARGET
@click.option("--breaker", is_flag=True, help="Instead: release a breaker that tripped.")
@click.option(
    "-n",
    "--namespace",
    type=namespace_name,
    metavar="NAME",
    help=f"Default: the context's; with --breaker, $TTL_NAMESPACE, else {HOME}. For `run`: its --lease-namespace.",
)
@kinds_dir_option
@policy_in_force_option
@cluster_options
@asynchronous
async def release(
    target: tuple[str, ...],
    breaker: bool,
    namespace: str | None,
    kinds_dir: Path | None,
    policy: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """End a hold: the TTL of the object applies again. With --breaker: release the breaker instead."""
    if breaker:
        if target:
            raise click.UsageError("expected either KIND/NAME or --breaker, got both")
        await _release_breaker(namespace or home_namespace(), kubeconfig, context)
        return
    async with connected_target(target, namespace, kinds_dir, policy, kubeconfig, context) as found:
        written = await write(found.rule, found.ref, lambda obj: edits.release(obj, found.rule), editor=found.cluster)
        echo(f"{found.ref} is {'released' if written.change else 'not held'}")
        echo_messages(written)
        decision = await found.evaluator.decide(written.snapshot, found.rule)
        echo_decision(decision, written, found)
        if overridden := describe_override(decision, written, found.rule):
            echo(f"note: {overridden}", indent=2)


@command("set")
@click.argument("words", nargs=-1, metavar="KIND/NAME TIME")
@click.option("--succeeded", is_flag=True, help="Only if it succeeds.")
@click.option("--failed", is_flag=True, help="Only if it fails.")
@click.option("--unset", is_flag=True, help="Without TIME: remove the TTL annotations.")
@namespace_option
@kinds_dir_option
@policy_in_force_option
@cluster_options
@asynchronous
async def set_ttl(
    words: tuple[str, ...],
    succeeded: bool,
    failed: bool,
    unset: bool,
    namespace: str | None,
    kinds_dir: Path | None,
    policy: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Set the TTL of an object: how long it is kept after it finishes.

    TIME is a duration (3600, 90s, 1h30m, 2d), `never`, or an instant (2026-01-02T03:04:05Z).
    """
    target, wish = (words, "") if unset else (words[:-1], words[-1] if words else "")
    if not target or len(target) > 2 or (unset and len(target) == 2 and "/" in target[0]):  # noqa: PLR2004 - KIND NAME
        raise click.UsageError("expected KIND/NAME TIME, for instance job/backup 1h, or KIND/NAME --unset")
    if succeeded and failed:
        raise click.UsageError("expected one of --succeeded and --failed, or neither, which means both")
    of = Outcome.SUCCEEDED if succeeded else Outcome.FAILED if failed else None
    async with connected_target(target, namespace, kinds_dir, policy, kubeconfig, context) as found:
        if unset:
            written = await write(found.rule, found.ref, lambda obj: edits.unset_ttl(obj, of), editor=found.cluster)
        else:
            written = await write(
                found.rule, found.ref, lambda obj: edits.set_ttl(obj, found.rule, wish, of), editor=found.cluster
            )
        echo(describe_annotations(written, found.ref))
        echo_messages(written)
        decision = await found.evaluator.decide(written.snapshot, found.rule)
        echo_decision(decision, written, found)
        if shorter := not unset and await describe_maximum(wish, decision, found):
            echo(f"note: {shorter}", indent=2)
        if overridden := describe_override(decision, written, found.rule):
            raise TtlError(f"this TTL is overridden: {overridden}")


async def _release_breaker(namespace: str, kubeconfig: str | None, context: str | None) -> None:
    async with connected(kubeconfig, context) as cluster:
        trip = await release_breaker(cluster, namespace)
    if trip is None:
        home = home_namespace()
        elsewhere = f"for an installation, set -n {home}" if namespace == RUN else f"for a `run`, set -n {RUN}"
        raise TtlError(f"no breaker is open in namespace {namespace}; {elsewhere}")
    echo(f"the breaker in namespace {namespace} is released; nothing was deleted {trip}")
