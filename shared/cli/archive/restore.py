"""`archive restore`: create an archived object again."""

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime

import click

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.creation import ObjectCreation
from shared.cli.archive.documents import origin_of, read_children, read_chosen
from shared.cli.archive.get import version_options
from shared.cli.archive.selected import find_stored, target_argument
from shared.cli.archive.source import ArchiveSource, archive_options, open_source
from shared.cli.input.command import command
from shared.cli.input.options import Options, context_namespace_option
from shared.cli.input.target import connected, is_absent, split_target
from shared.cli.objects.advice import commands_for
from shared.cli.objects.object_report import describe_fate
from shared.cli.output.printing import confirm, echo, inform, plural
from shared.core.archive.document import Document
from shared.core.archive.draft import FieldPath, parse_field_path
from shared.core.archive.layout import ArchiveKey
from shared.core.archive.server_fields import QUEUE_LABEL
from shared.core.ttl.ttl import advise_overridden, describe_overridden
from shared.core.values.objects import format_instant, get_annotations, printable, ref_of
from shared.errors import TtlError
from shared.evaluation.evaluator import Evaluator
from shared.usecases.archives.search import Wanted
from shared.usecases.restore import Restored, RestoreOptions
from shared.usecases.restore import restore as restore_documents


def _fields_option(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[FieldPath, ...]:
    """Parse the paths of --leave-out."""
    try:
        return tuple(parse_field_path(value) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@command()
@target_argument
@context_namespace_option
@version_options
@click.option("--suspended", is_flag=True, help="Create an object that would run again suspended.")
@click.option("--yes-run-again", is_flag=True, help="Let an object run again that its controller runs once it exists.")
@click.option("--children", is_flag=True, help="Also the children that were archived with the object.")
@click.option("--no-hold", is_flag=True, help="Set no hold, and keep the TTL fields: a TTL can delete the object.")
@click.option(
    "--leave-out",
    callback=_fields_option,
    multiple=True,
    metavar="FIELD",
    help="Create the objects without this field, such as spec.tolerations; can be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only let the API server check the object; nothing is created.")
@archive_options
async def restore(
    options: Options,
    *,
    target: tuple[str, ...],
    uid: str,
    at: datetime | None,
    resource_version: str,
    digest: str,
    suspended: bool,
    yes_run_again: bool,
    children: bool,
    no_hold: bool,
    leave_out: tuple[FieldPath, ...],
    dry_run: bool,
) -> None:
    """Create an archived object again, under its name, without the fields that the API server sets.

    An existing object is never overwritten. An object that would run again, such as a Job, is rejected unless you set
    --suspended or --yes-run-again. A suspended object is created without the labels by which Kueue would start it. The
    new object is held until `kubectl ttl release`, so that its old TTL does not delete it: the TTL fields of its kind
    are removed until then. The API server checks all objects before the first is created. If it refuses one, the error
    names the fields that --leave-out can leave out. An object of another cluster is rejected unless --cluster names
    that cluster with its id (NAME.ID), or you confirm it on a terminal. If several documents of the same version
    differ, nothing is restored unless --digest names one or they are signed. The printed time of the archiving is that
    of `archive ls`, by the clock of the store.
    """
    if suspended and yes_run_again:
        raise click.UsageError("expected either --suspended or --yes-run-again, got both")
    split_target(target)
    async with connected(options) as cluster:
        source = await open_source(options, cluster)
        chosen = await find_stored(source, target, options, Wanted(uid, resource_version, at, digest))
        chosen, document = await read_chosen(source.archive, chosen)
        if others := chosen.describe_others():
            inform(printable(f"note: {others}"))
        _check_cluster(source, chosen.stored.key, document, asked=options.cluster, server=cluster.server)
        await _check_namespace(chosen.stored.key.namespace, cluster, options.flags)
        documents = [document, *(await read_children(source, chosen.stored.key, document) if children else [])]
        asked = RestoreOptions(
            suspended=suspended,
            may_run=yes_run_again,
            hold=not no_hold,
            dry_run=dry_run,
            archive=source.name,
            leave_out=leave_out,
        )
        restored = await restore_documents(documents, asked, creator=ObjectCreation(cluster), kinds=source.kinds)
        times = [format_instant(chosen.stored.stored_at), *([f"with {ref_of(document.obj)}"] * (len(documents) - 1))]
        for one, archived in zip(restored, times, strict=True):
            await _report(one, archived, source, cluster, options=options, dry_run=dry_run)
    if not children and (count := len(document.record.children)):
        verb, them = ("is", "it") if count == 1 else ("are", "them")
        children_left = plural(count, "archived child", "archived children")
        echo(f"note: {children_left} {verb} not restored; --children restores {them} as well")


def _check_cluster(source: ArchiveSource, key: ArchiveKey, document: Document, *, asked: str, server: str) -> None:
    """Say from which cluster to which one an object is restored; check that a person wants that if they differ.

    Raises:
        UsageError: They differ, the command names no cluster, and there is no terminal to ask on.
    """
    origin = origin_of(key, document)
    way = f"from cluster {origin} to {source.this_cluster} at {server}"
    if origin.is_of(source.here) or origin.is_named_by(asked):
        inform(printable(way))
        return
    why = f"; {source.unknown}" if source.unknown else ""
    differs = f"{way}: this is another cluster{why}"
    if not sys.stdin.isatty():
        raise click.UsageError(printable(f"{differs}; nothing was restored: to do that, set --cluster {key.cluster}"))
    confirm(printable(f"{differs}. Restore it there?"))


async def _check_namespace(namespace: str, cluster: KubernetesCluster, flags: Sequence[str]) -> None:
    """Check that the namespace of the object exists.

    Raises:
        TtlError: It does not.
    """
    if namespace and await is_absent(namespace, cluster):
        make = shlex.join(("kubectl", "create", "namespace", namespace, *flags))
        raise TtlError(f"namespace {namespace} does not exist on {cluster.server}; to make it: `{make}`")


async def _report(
    restored: Restored,
    archived: str,
    source: ArchiveSource,
    cluster: KubernetesCluster,
    *,
    options: Options,
    dry_run: bool,
) -> None:
    """Print what was created, what differs from the archived object, and what its TTL does.

    Args:
        restored: The object.
        archived: When it was archived, by the clock of the store; of a child, with which object.
        source: The archive.
        cluster: The cluster of the new object.
        options: The options of the command, for suggested commands.
        dry_run: Whether nothing is created.
    """
    ref = ref_of(restored.snapshot.obj)
    does = "would be restored (dry run: nothing is created)" if dry_run else "is restored"
    echo(printable(f"{ref} {does}, as archived {archived}"))
    for sentence in restored.notes:
        echo(printable(sentence), indent=2)
    for sentence in _state(restored, options.flags):
        echo(printable(sentence), indent=2)
    rule = restored.draft.rule
    if rule is None:
        echo("its kind has no rule: ttl-after-finished never deletes it", indent=2)
        return
    evaluator = Evaluator(cluster, source.kinds, lambda: source.policy)
    decision = await evaluator.decide(restored.snapshot, rule)
    echo(printable(describe_fate(decision, restored.snapshot.read_at)), indent=2)
    if field := decision.facts.overridden:
        overridden = describe_overridden(restored.snapshot.obj, rule, field)
        echo(printable(f"note: {overridden}; {advise_overridden(field)}"), indent=2)
    if "hold" in get_annotations(restored.snapshot.obj):
        command = commands_for(("release",), ref, rule, flags=options.flags)["release"]
        echo(f"to let its TTL apply again: {command}", indent=2)


def _state(restored: Restored, flags: Sequence[str]) -> Iterator[str]:
    """Say whether the object runs, and how to let a suspended object run."""
    draft, ref = restored.draft, ref_of(restored.snapshot.obj)
    if draft.runs:
        yield "it runs again"
    elif draft.is_suspended:
        kind = draft.rule.name if draft.rule else ref.kind.lower()
        place = (f"{kind}/{ref.name}", *(("-n", ref.namespace) if ref.namespace else ()))
        patch = ("--type=merge", "-p", json.dumps(draft.resume, separators=(",", ":")))
        run = shlex.join(("kubectl", "patch", *place, *patch, *flags))
        how = " without Kueue" if draft.queue else ""
        yield f"it is suspended; to let it run{how}: `{run}`"
        if draft.queue and ref.kind != "Pod":  # Kueue queues a Pod only at its creation.
            label = shlex.join(("kubectl", "label", *place, f"{QUEUE_LABEL}={draft.queue}", *flags))
            yield f"to let Kueue start it: `{label}`"
