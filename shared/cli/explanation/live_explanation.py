"""`explain` of one object of a cluster: what is in force there, and what prevents the deletion.

If the object does not exist any more: what the journal and its archive know about it.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from shared.adapters.clock import SystemClock
from shared.adapters.kubernetes.journal_reading import JournalEvent
from shared.cli.archive.documents import count_logs, describe_log_problems, read_chosen
from shared.cli.archive.source import find_own, open_destination
from shared.cli.deleters.in_force import InForce, PolicyInForce, check_reachable, opened_archives, read_in_force
from shared.cli.deleters.obstacles import Obstacle, ObstacleReason, find_obstacles, find_stale_guard, find_stops
from shared.cli.explanation.explanation_text import ExplanationPrinter, is_unsure
from shared.cli.input.options import Options
from shared.cli.input.target import connected, find_rule, namespace_of, parse_target, ref_to, split_target
from shared.cli.objects.archive_report import if_archived
from shared.cli.objects.journal import WORDS, describe_counted, describe_deleted, entry_as_json, find_entries_of
from shared.cli.objects.object_report import ExplainContext, is_stop_ahead
from shared.cli.objects.preview import AbsentObjectError, find_one
from shared.cli.output.printing import describe_instant, describe_time, instant_as_json, plural, warn, wrap_labelled
from shared.cli.usage.findings import find_usage_kind
from shared.cli.usage.usage_report import print_usage
from shared.core.archive.document import Document
from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Decision, Ignore
from shared.core.kinds.rule import KindRule
from shared.core.policy.archives import ArchiveDestination
from shared.core.values.objects import ObjectRef, get_text, printable
from shared.errors import TtlError
from shared.evaluation.archive_identity import ClusterIdentity
from shared.installation.guard_status import read_guard
from shared.ports import JournalAction
from shared.safeguards.safeguards import Safeguard
from shared.usecases.archives.search import ArchiveSelection, Chosen, Wanted, choose, find_versions

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


async def explain_live(options: Options, target: tuple[str, ...], output: str) -> None:
    """Connect to the cluster, and print the decision about one object there.

    Raises:
        UsageError: The arguments are not one kind and one name.
        TtlError: The object cannot be read.
    """
    word, name = split_target(target, or_else=", or -f FILE")
    async with connected(options) as cluster:
        force = await read_in_force(cluster, options)
        if (usage_kind := find_usage_kind(word)) is not None:
            await _explain_usage(cluster, usage_kind, name, options=options, force=force, output=output)
            return
        chosen = force.choose(options.policy)
        rules, _ = parse_target(target, force.kinds)
        rule = await find_rule(cluster, rules, target[0])
        place = namespace_of(options) if rule.scope == "Namespaced" else ""
        try:
            async with opened_archives(force, chosen) as archives:
                one = await find_one(
                    cluster,
                    rule,
                    kinds=force.kinds,
                    enabled=force.enabled,
                    namespace=place,
                    name=name,
                    policy=chosen.policy,
                    flags=force.flags,
                    archives=archives,
                )
        except AbsentObjectError as error:
            await _explain_gone(cluster, error, ref_to(rule, place, name), rule, chosen, force=force, output=output)
            return
        guard = await read_guard(cluster, force.kinds.of(rule.group, rule.kind), force.home)
        # A running object can only be stopped, and a finished one only be deleted.
        ahead = one.stop if one.stop and is_stop_ahead(one.stop) else if_archived(one.decision, one.now)
        may_be_due = isinstance(ahead, Ignore) and is_unsure(one.decision, chosen)
        obstacles = (
            *(stop for stop in find_stops(force, one.now) if may_be_due and stop.reason is not Safeguard.STOP_UNREAD),
            *find_obstacles(force, one.ref, rule, decision=ahead, now=one.now),
            *find_stale_guard(force, rule, one.decision, guard=guard),
            *await find_last_refusal(cluster, force, one.ref, decision=ahead, now=one.now),
        )
        printer = ExplanationPrinter(output)
        printer.print([(one, ExplainContext(chosen, obstacles, force.flags, guard))])
        printer.end()
    if is_unsure(one.decision, chosen) or one.unread:
        raise SystemExit(1)


async def _explain_usage(
    cluster: "KubernetesCluster", rule: KindRule, name: str, *, options: Options, force: InForce, output: str
) -> None:
    """Print whether a Secret or a ConfigMap is used, and the decision about it."""
    try:
        await print_usage(cluster, rule, name, options=options, force=force, output=output)
    except AbsentObjectError as error:
        chosen, ref = force.choose(options.policy), ref_to(rule, namespace_of(options), name)
        await _explain_gone(cluster, error, ref, rule, chosen, force=force, output=output)


async def _explain_gone(
    cluster: "KubernetesCluster",
    error: TtlError,
    ref: ObjectRef,
    rule: KindRule,
    chosen: PolicyInForce,
    *,
    force: InForce,
    output: str,
) -> None:
    """Print what is known about an object that does not exist any more."""
    await explain_gone(
        error,
        ref,
        rule,
        chosen,
        identity=force.identity,
        flags=force.flags,
        output=output,
        deletion=await find_record(cluster, ref),
    )


async def find_last_refusal(
    cluster: "KubernetesCluster", found: InForce, ref: ObjectRef, *, decision: Decision | StopDecision, now: datetime
) -> tuple[Obstacle, ...]:
    """Find the newest refusal of exactly this object; none if the object is kept, or if the Events cannot be read.

    Args:
        cluster: The cluster.
        found: What is in force on the cluster.
        ref: The object.
        decision: The decision about it.
        now: The time by the API server's clock.
    """
    if isinstance(decision, Ignore):
        return ()
    try:
        entries = await find_entries_of(cluster, ref, JournalAction.REFUSE)
    except TtlError:  # its other obstacles do not depend on the Events
        return ()
    doctor = shlex.join(("kubectl", "ttl", "doctor", "-n", found.home, *found.flags))
    cure = f"follow the answer; to check the rights: `{doctor}`"

    def obstacles() -> Iterator[Obstacle]:
        for one in entries.named:
            if one.ref.uid == ref.uid:
                message = f"{one.note.replace('refused', f'refused {describe_time(one.at, now)}', 1)} ({one.reason})"
                yield Obstacle(ObstacleReason.REFUSED, message, cure, since=one.at)
                return
        if entries.counted:
            count = plural(entries.count, f"refusal of kind {ref.kind}", f"refusals of kind {ref.kind}")
            message = f"it may be among {count} in its namespace that Events only count"
            yield Obstacle(ObstacleReason.REFUSED, message, cure, since=entries.counted[0].at)

    return tuple(obstacles())


@dataclass(frozen=True, slots=True)
class DeletionRecord:
    """What the Events show about the deletion of an object.

    Attributes:
        newest: The newest deletion of an object of this name; None if no Event shows one.
        others: How many older ones there are.
        counted: How many deletions of its kind in its namespace have no name.
        kind: Its kind.
        problem: Why the Events could not be read; empty if they could.
    """

    newest: JournalEvent | None = None
    others: int = 0
    counted: int = 0
    kind: str = ""
    problem: str = ""

    def describe_absence(self) -> str:
        """Return, for an error message, what is known without an Event about the object."""
        if self.problem:
            return f"; its Events could not be read: {self.problem}"
        if self.counted:
            return f"; {describe_counted(self.counted, self.kind)}: run `kubectl ttl deleted`"
        return f"; no Event says that it was deleted: {WORDS[JournalAction.DELETE].unknown}" if self.kind else ""

    def lines(self, now: datetime) -> Iterator[tuple[str, str]]:
        """Yield the lines of `explain`, with their labels."""
        if self.newest is not None:
            yield "deleted", describe_deleted(self.newest, now)
        if self.others:
            yield "deleted", f"`kubectl ttl deleted` has {plural(self.others, 'older deletion')} of this name"

    def as_json(self) -> dict[str, Any]:
        """Return the field for `explain -o json`; none without an Event."""
        return {"deletion": entry_as_json(self.newest)} if self.newest else {}

    def echo(self, output: str) -> None:
        """Print an object of which only the journal knows."""
        if self.newest is None:
            return
        if output == "text":
            lines = [("decision", "gone: it does not exist any more"), *self.lines(SystemClock().now())]
            lines.append(("uid", self.newest.ref.uid))
            click.echo("\n".join((printable(str(self.newest.ref)), *wrap_labelled(lines))))
            return
        ref, data = self.newest.ref, self.newest.data
        found = {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "namespace": ref.namespace or None,
            "name": ref.name,
            "finished": True if data.get("finishedAt") else None,
            "finishedAt": data.get("finishedAt"),
            "outcome": data.get("outcome"),
            "ttlFrom": data.get("ttlFrom") or None,
            "dueAt": data.get("dueAt"),
            "decision": "gone",
            "reason": "deleted",
            "deletedAt": instant_as_json(self.newest.at),
        }
        click.echo(json.dumps(found | self.as_json(), indent=2))


NO_RECORD = DeletionRecord()
"""What is known if the journal is not asked."""


async def find_record(cluster: "KubernetesCluster", ref: ObjectRef) -> DeletionRecord:
    """Find what the journal knows about the deletion of an object; its uid is ignored."""
    try:
        found = await find_entries_of(cluster, ref)
    except TtlError as error:
        return DeletionRecord(kind=ref.kind, problem=str(error))
    newest = found.named[0] if found.named else None
    return DeletionRecord(newest, max(len(found.named) - 1, 0), found.count, ref.kind)


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
    children = plural(len(record.children), "child", "children")
    return f"{plural(one.chosen.versions, 'stored version')}, {children}, {count_logs(record)}"


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
                {"uid": each.key.uid, "acknowledgedAt": instant_as_json(each.stored_at)} for each in one.chosen.others
            ],
        },
    }
