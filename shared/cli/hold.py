"""`hold`, `release` and `set`: what people say of one object, written so that it counts."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.state_configmap import release as release_breaker
from shared.cli.deleters.in_force import InForce, PolicyInForce, read_in_force
from shared.cli.deleters.obstacles import find_obstacles
from shared.cli.objects.object_report import describe_fate, is_ahead
from shared.cli.objects.owners import DeletingOwner, find_deleting_owners
from shared.cli.options.click_options import cluster_options, kinds_dir_option, namespace_option, policy_in_force_option
from shared.cli.options.scope import command, namespace_name
from shared.cli.options.target import find_rule, parse_target, ref_to, split_target
from shared.cli.options.values import home_namespace
from shared.cli.output.width import echo
from shared.cli.process.asynchronous import asynchronous
from shared.cli.process.connection import connected, context_namespace
from shared.core.decide import Decision
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.objects import ANNOTATION_DOMAIN, ObjectRef, printable
from shared.core.ttl import edits
from shared.core.ttl.overridden import advise_overridden, describe_overridden
from shared.errors import TtlError
from shared.evaluation.evaluator import Evaluator
from shared.installation.defaults import HOME, RUN
from shared.usecases.hold import Written, hold_object, write

_TARGET = click.argument("target", nargs=-1, metavar="KIND/NAME")


@dataclass(frozen=True, slots=True)
class _Aim:
    """The object that is meant, and its cluster."""

    cluster: KubernetesCluster
    force: InForce
    named: PolicyInForce
    rule: KindRule
    ref: ObjectRef


@command()
@_TARGET
@click.option("--reason", required=True, metavar="WHY", help="For the people who find it there.")
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
    """Keep an object until it is released, whatever its TTL says.

    Where the kind's own controller acts on a TTL field of the object, as kube-controller-manager does for a Job, that
    field is taken away for as long.
    """
    async with _aimed(target, namespace, kinds_dir, policy, kubeconfig, context) as aim:
        written = await hold_object(aim.rule, aim.ref, reason, editor=aim.cluster)
        echo(f"{aim.ref} is held: {reason}")
        _tell(written)
        evaluator = _evaluator(aim)
        decision = await evaluator.decide(written.snapshot, aim.rule)
        deleting_owners = await find_deleting_owners(
            written.snapshot.obj,
            cluster=aim.cluster,
            kinds=aim.force.kinds,
            evaluator=evaluator,
            reason=reason,
            flags=aim.force.flags,
        )
        _check_hold(written, aim.rule, decision.facts.overridden, deleting_owners)


@command()
@_TARGET
@click.option("--breaker", is_flag=True, help="Instead: let a breaker that tripped delete again.")
@click.option(
    "-n",
    "--namespace",
    type=namespace_name,
    metavar="NAME",
    help=f"Default: the context's; with --breaker, $TTL_NAMESPACE, else {HOME}. For `run`, its Lease's.",
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
    """End a hold: what a TTL says of the object counts again. Or, with --breaker, release the breaker."""
    if breaker:
        if target:
            raise click.UsageError("expected either KIND/NAME or --breaker, got both")
        await _release_breaker(namespace or home_namespace(), kubeconfig, context)
        return
    async with _aimed(target, namespace, kinds_dir, policy, kubeconfig, context) as aim:
        written = await write(aim.rule, aim.ref, lambda obj: edits.release(obj, aim.rule), editor=aim.cluster)
        echo(f"{aim.ref} is {'released' if written.change else 'not held'}")
        _tell(written)
        decision = await _decide(written, aim)
        _tell_fate(decision, written, aim)
        if overridden := _describe_overridden(decision, written, aim.rule):
            echo(f"mind: {overridden}", indent=2)


@command("set")
@click.argument("words", nargs=-1, metavar="KIND/NAME TIME")
@click.option("--succeeded", is_flag=True, help="Only if it succeeds.")
@click.option("--failed", is_flag=True, help="Only if it fails.")
@click.option("--unset", is_flag=True, help="Without TIME: take back what was said before.")
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
    """Say how long an object stays after it finished.

    TIME is a duration (3600, 90s, 1h30m, 2d), `never`, or an instant (2026-01-02T03:04:05Z).
    """
    target, wish = (words, "") if unset else (words[:-1], words[-1] if words else "")
    if not target or len(target) > 2 or (unset and len(target) == 2 and "/" in target[0]):  # noqa: PLR2004 - KIND NAME
        raise click.UsageError("expected KIND/NAME TIME, for instance job/backup 1h, or KIND/NAME --unset")
    if succeeded and failed:
        raise click.UsageError("expected one of --succeeded and --failed, or neither, which means both")
    of = Outcome.SUCCEEDED if succeeded else Outcome.FAILED if failed else None
    async with _aimed(target, namespace, kinds_dir, policy, kubeconfig, context) as aim:
        if unset:
            written = await write(aim.rule, aim.ref, lambda obj: edits.unset_ttl(obj, of), editor=aim.cluster)
        else:
            written = await write(
                aim.rule, aim.ref, lambda obj: edits.set_ttl(obj, aim.rule, wish, of), editor=aim.cluster
            )
        echo(_headline(written, aim.ref))
        _tell(written)
        evaluator = _evaluator(aim)
        decision = await evaluator.decide(written.snapshot, aim.rule)
        _tell_fate(decision, written, aim)
        if shorter := not unset and await _describe_maximum(wish, decision, aim.ref, evaluator):
            echo(f"mind: {shorter}", indent=2)
        if overridden := _describe_overridden(decision, written, aim.rule):
            raise TtlError(f"this is powerless: {overridden}")


async def _release_breaker(namespace: str, kubeconfig: str | None, context: str | None) -> None:
    async with connected(kubeconfig, context) as cluster:
        trip = await release_breaker(cluster, namespace)
    if trip is None:
        home = home_namespace()
        elsewhere = f"an installation is in -n {home}" if namespace == RUN else f"a plain `run` is in -n {RUN}"
        raise TtlError(f"no breaker is open in namespace {namespace}; that of {elsewhere}")
    echo(f"the breaker of the installation in namespace {namespace} is released; nothing was deleted {trip}")


@asynccontextmanager
async def _aimed(
    target: tuple[str, ...],
    namespace: str | None,
    kinds_dir: Path | None,
    policy: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> AsyncIterator[_Aim]:
    split_target(target)
    async with connected(kubeconfig, context) as cluster:
        force = await read_in_force(cluster, kinds_dir, kubeconfig=kubeconfig, context=context)
        named = force.choose(policy)
        rules, name = parse_target(target, force.kinds)
        rule = await find_rule(cluster, rules, target[0])
        place = namespace or context_namespace(kubeconfig, context)
        yield _Aim(cluster, force, named, rule, ref_to(rule, place, name))


def _headline(written: Written, ref: ObjectRef) -> str:
    if written.change is None:
        return f"{ref}: there is nothing to unset"
    said = {name: value for name, value in written.change.annotations.items() if value is not None}
    if not said:
        gone = [f"{ANNOTATION_DOMAIN}/{name}" for name in written.change.annotations]
        return f"{ref}: {', '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone"
    return f"{ref}: " + ", ".join(f"{ANNOTATION_DOMAIN}/{name} is {value}" for name, value in said.items())


def _tell(written: Written) -> None:
    for sentence in written.change.message if written.change else ():
        echo(printable(sentence), indent=2)


def _evaluator(aim: _Aim) -> Evaluator:
    return Evaluator(aim.cluster, aim.force.kinds, lambda: aim.named.policy)


async def _decide(written: Written, aim: _Aim) -> Decision:
    return await _evaluator(aim).decide(written.snapshot, aim.rule)


def _tell_fate(decision: Decision, written: Written, aim: _Aim) -> None:
    now = written.snapshot.read_at
    echo(describe_fate(decision, now), indent=2)
    if aim.named.name or not aim.named.is_known:
        echo(f"policy: {printable(aim.named.message)}", indent=2)
    if aim.rule.opt_in and is_ahead(decision):
        echo(f"mind: {aim.rule.opt_in}", indent=2)
    for one in find_obstacles(aim.force, aim.ref, aim.rule, decision, now):
        echo(f"mind: {printable(one.message)}; {one.cure}", indent=2)


async def _describe_maximum(wish: str, decision: Decision, ref: ObjectRef, evaluator: Evaluator) -> str:
    """How the object's namespace shortens what was set; a namespace that cannot be read is reported elsewhere."""
    with suppress(TtlError):
        namespace = await evaluator.namespaces.get(ref.namespace) if ref.namespace else None
        if namespace is not None:
            return edits.describe_maximum(wish, namespace.max_ttl, decision.facts.finish.at)
    return ""


def _describe_overridden(decision: Decision, written: Written, rule: KindRule) -> str:
    field = decision.facts.overridden
    return f"{describe_overridden(written.snapshot.obj, rule, field)}; {advise_overridden(field)}" if field else ""


def _check_hold(written: Written, rule: KindRule, field: str, deleting_owners: Sequence[DeletingOwner]) -> None:
    """Whether it counts is told by the object as it is stored now: a default comes straight back.

    Raises:
        TtlError: The kind's own controller acts all the same, or the object is deleted with an owner.
    """
    if field:
        raise TtlError(_overridden_hold(written, rule, field))
    if deleting_owners:
        told = "; ".join("; ".join(filter(None, (one.message, one.fix))) for one in deleting_owners)
        raise TtlError(printable(f"the hold is powerless: {told}"))


def _overridden_hold(written: Written, rule: KindRule, field: str) -> str:
    if written.refused:
        why = f"the API server does not let go of the field: {written.refused}"
    elif written.change and field in written.change.fields:
        why = "it was taken away, and came straight back"
    else:
        why = advise_overridden(field)
    return f"the hold is powerless: {describe_overridden(written.snapshot.obj, rule, field)}; {why}"
