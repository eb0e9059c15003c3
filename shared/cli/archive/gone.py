"""`explain` of an object that does not exist any more: what the journal and its archive know about it."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from shared.adapters.clock import SystemClock
from shared.cli.archive.documents import count_logs, describe_log_problems, read_chosen
from shared.cli.archive.source import find_own, open_destination
from shared.cli.deleters.in_force import PolicyInForce
from shared.cli.deleters.reachable_archives import check_reachable
from shared.cli.journal.record import NO_RECORD, DeletionRecord
from shared.cli.output.messages import warn
from shared.cli.output.plural import plural
from shared.cli.output.time_text import describe_instant, instant_as_json
from shared.cli.output.width import wrap_labelled
from shared.core.archive.document import Document
from shared.core.kinds.rule import KindRule
from shared.core.policy.archives import ArchiveDestination
from shared.core.values.objects import ObjectRef, get_text, printable
from shared.errors import TtlError
from shared.evaluation.cluster_id import ClusterIdentity
from shared.usecases.archives.search import ArchiveSelection, Chosen, Wanted, choose, find_versions


@dataclass(frozen=True, slots=True)
class GoneObject:
    """An object that does not exist any more, as an archive has it.

    Attributes:
        archive: The name of the archive.
        chosen: The newest stored resource version.
        document: What is stored.
    """

    archive: str
    chosen: Chosen
    document: Document


async def explain_gone(
    error: TtlError,
    ref: ObjectRef,
    rule: KindRule,
    chosen: PolicyInForce,
    *,
    identity: ClusterIdentity,
    flags: Sequence[str],
    output: str,
    deletion: DeletionRecord = NO_RECORD,
) -> None:
    """Print what the journal and the archives of the policy know about an object that does not exist.

    Args:
        error: The error that says that it does not exist.
        ref: The object, without its uid.
        rule: The rule of its kind.
        chosen: The policy, which names the archives.
        identity: The cluster, as the archives name it.
        flags: The flags that make kubectl use the object's cluster, for suggested commands.
        output: `text` or `json`.
        deletion: What the journal knows.

    Raises:
        TtlError: Neither the journal nor an archive has the object.
    """
    searched: list[str] = []
    found: list[GoneObject] = []
    for name, destination in chosen.policy.archives.items():
        if destination.url is None:
            continue
        searched.append(name)
        try:
            check_reachable(name, destination, is_local=chosen.is_local)
            found += [one] if (one := await _search(name, destination, ref, identity)) else []
        except TtlError as problem:
            warn(printable(f"archive {name} could not be searched: {problem}"))
    if not found:
        where = f", and not in archive {', '.join(searched)}" if searched else ""
        if not deletion.newest:
            raise TtlError(f"{error}{where}{deletion.describe_absence()}")
        deletion.echo(output)
        return
    newest = max(found, key=lambda one: one.chosen.stored.stored_at)
    if output == "json":
        click.echo(json.dumps(_as_json(newest) | deletion.as_json(), indent=2))
    else:
        policy = ("--policy", chosen.name) if chosen.is_local else ()
        commands = _commands(newest, rule, (*policy, *flags))
        click.echo("\n".join(_text(newest, commands, SystemClock().now(), deletion)))


async def _search(
    name: str, destination: ArchiveDestination, ref: ObjectRef, identity: ClusterIdentity
) -> GoneObject | None:
    archive = open_destination(name, destination)
    cluster = await find_own(archive, await identity.find(), name=name)
    if not cluster:
        return None
    selection = ArchiveSelection(
        cluster, (ref.namespace,), lambda group, kind: (group, kind) == (ref.group, ref.kind), ref.name
    )
    found = await find_versions(archive, selection)
    if not found:
        return None
    chosen = choose(found, Wanted(), what=str(ref))
    return GoneObject(name, *await read_chosen(archive, chosen))


def _text(one: GoneObject, commands: Sequence[str], now: datetime, deletion: DeletionRecord) -> Iterator[str]:
    """Yield the lines, wrapped if there is a terminal."""
    yield printable(_named(one))
    yield from wrap_labelled((*_lines(one, commands, now), *deletion.lines(now)))


def _named(one: GoneObject) -> str:
    key = one.chosen.stored.key
    return str(ObjectRef(key.api_version, key.kind, key.namespace, key.name, key.uid))


def _lines(one: GoneObject, commands: Sequence[str], now: datetime) -> Iterator[tuple[str, str]]:
    record, stored = one.document.record, one.chosen.stored
    yield "decision", "gone: it does not exist any more; an archive has it"
    yield from (("do", command) for command in commands)
    outcome = record.outcome or "yes"
    finished = f"{outcome} at {describe_instant(record.finished_at, now)}" if record.finished_at else "time unknown"
    yield "finished", finished
    yield "ttl", f"set by {record.ttl_from}" if record.ttl_from else "none was known when it was archived"
    yield "due", describe_instant(record.due_at, now) if record.due_at else "-"
    by = f", by policy rule {record.rule}" if record.rule else ", by its annotation or that of its namespace"
    yield "archive", f"{one.archive}{by}; acknowledged {describe_instant(stored.stored_at, now)}: {stored.location}"
    yield "archive", f"uid {stored.key.uid}, resource version {stored.key.resource_version}, {_counted(one)}"
    yield from (("logs", problem) for problem in describe_log_problems(record))
    if others := one.chosen.describe_others():
        yield "archive", others
    if annotation := get_text(one.document.obj, "metadata.deletionTimestamp"):
        yield "deleted", f"a DELETE was accepted before it was archived, at {annotation}"


def _counted(one: GoneObject) -> str:
    record = one.document.record
    parts = [
        plural(one.chosen.versions, "stored version"),
        plural(len(record.children), "child", "children"),
        count_logs(record),
    ]
    return ", ".join(parts)


def _commands(one: GoneObject, rule: KindRule, flags: Sequence[str]) -> list[str]:
    key = one.chosen.stored.key
    target = (f"{rule.name}/{key.name}", *(("-n", key.namespace) if key.namespace else ()), "--archive", one.archive)
    get, restore = (shlex.join(("kubectl", "ttl", "archive", word, *target, *flags)) for word in ("get", "restore"))
    return [f"to print it: `{get}`", f"to create it again: `{restore}`"]


def _as_json(one: GoneObject) -> dict[str, Any]:
    record, stored = one.document.record, one.chosen.stored
    key = stored.key
    return {
        "apiVersion": key.api_version,
        "kind": key.kind,
        "namespace": key.namespace or None,
        "name": key.name,
        "finished": True if record.finished_at else None,
        "finishedAt": instant_as_json(record.finished_at),
        "outcome": record.outcome,
        "ttlFrom": record.ttl_from or None,
        "dueAt": instant_as_json(record.due_at),
        "decision": "gone",
        "reason": "archived",
        "archive": {
            "name": one.archive,
            "rule": record.rule or None,
            "acknowledgedAt": instant_as_json(stored.stored_at),
            "location": stored.location,
            "uid": key.uid,
            "resourceVersion": key.resource_version,
            "digest": key.digest,
            "children": list(record.children),
            "logs": list(record.logs),
            "logProblems": record.log_problems,
            "redacted": record.redacted,
            "others": [
                {"uid": other.key.uid, "acknowledgedAt": instant_as_json(other.stored_at)}
                for other in one.chosen.others
            ],
        },
    }
