"""Store one object in an archive: its children and the logs first, and then the object itself.

So an object that is stored has all of its children stored. Every document has a key of its own content, and is stored
at most once: after a failure, and if several archivers store one object at the same time, the result is the same.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from shared.core.archive.archiving import Archiving
from shared.core.archive.copies import ArchiveCopy, copy_of
from shared.core.archive.document import Document, Record
from shared.core.archive.identity import ArchiveCluster
from shared.core.decision.finish import finish_of
from shared.core.kinds.rule import KindRule
from shared.core.policy.archives import ArchiveDestination
from shared.core.values.objects import ObjectRef, get_text, ref_of
from shared.errors import PermanentError
from shared.evaluation.children import Children
from shared.evaluation.pod_logs import PodLogs
from shared.ports import Archive, Archives, ConfirmingArchive, Snapshot, Stored
from shared.usecases.archives.byte_gate import ArchiveGates, ByteGate, HeldBytes
from shared.usecases.archives.logs import StoredLogs, write_logs
from shared.usecases.archives.lookup import (
    AcknowledgedCopy,
    FormerDocuments,
    Found,
    acknowledged_at,
    find_acknowledged,
    look_up,
)
from shared.usecases.archives.pauses import VersionPauses

CHILDREN_AT_ONCE = 16
"""Children of one object that are stored at the same time."""

CHILD_SHARE_MAX = 0.1
"""A child whose document is older than this share of `keep` is stored again, so that it does not expire before its
owner is deleted."""

_COPIES = 16  # the bytes of an object that was read, for each byte of its text


@dataclass(frozen=True, slots=True)
class _Child:
    rule: KindRule
    snapshot: Snapshot
    copied: ArchiveCopy


@dataclass(frozen=True, slots=True)
class ArchiveOrder:
    """How one object is stored.

    Attributes:
        archiving: What is wanted.
        destination: The archive in the policy.
        record: The line about the object, without its children and logs.
        may_lack_logs: Whether a log that cannot be read now is left out; otherwise it is an error.
        may_be_stored: Whether the object may be stored already: an attempt before has failed, or the archive was not
            asked for it. If not, the archive is not asked again before it is sent.
        held: What holds the bytes of the largest possible object; None if nothing does.
    """

    archiving: Archiving
    destination: ArchiveDestination
    record: Record
    may_lack_logs: bool = False
    may_be_stored: bool = True
    held: HeldBytes | None = None

    def of_child(self) -> Archiving:
        """What is wanted for a child: its own children are found with it, and stored for themselves."""
        return replace(self.archiving, children=False)

    def lasts(self, child: Stored) -> bool:
        """Return whether a child that is stored already is kept about as long as the object itself will be."""
        keep = self.destination.keep
        return keep is None or self.record.archived_at - child.stored_at <= keep * CHILD_SHARE_MAX


@dataclass(frozen=True, slots=True)
class ArchiveWriter:
    """Stores objects in the archives of a policy.

    Attributes:
        archives: The archives.
        children: Finds the children of an object.
        pod_logs: Reads the logs of Pods.
        gates: Bound the bytes of objects, children and logs.
        pauses: The pauses between the versions of one object.
    """

    archives: Archives
    children: Children
    pod_logs: PodLogs
    gates: ArchiveGates = field(default_factory=ArchiveGates)
    pauses: VersionPauses = field(default_factory=VersionPauses)
    _former: FormerDocuments = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_former", FormerDocuments(self.gates.logs))

    async def write(self, snapshot: Snapshot, rule: KindRule, order: ArchiveOrder) -> AcknowledgedCopy:
        """Store an object; return once the archive has acknowledged it.

        Args:
            snapshot: The object, and the API server's time.
            rule: The object's kind.
            order: How it is stored.

        Raises:
            TryLaterError: The archive or the API server is busy or away.
            PermanentError: The archive or the API server refuses for good, or the object cannot be stored.
        """
        archive = await self.archives.open(order.archiving.to, order.destination)
        cluster = await self.archives.find_cluster()
        copied = _copy(snapshot.obj, rule, order, cluster)
        if order.held is not None and not (order.archiving.children and rule.children):  # their pages are held as well
            order.held.shrink(_COPIES * len(copied.text))
        elapsed = _timer()
        found = await look_up(archive, copied.key) if order.may_be_stored else None
        if order.may_be_stored and (known := await self._acknowledged(archive, copied, found, order)):
            return known
        if former := await self._adopt(archive, copied, found, order):
            found = former
            if known := await self._acknowledged(archive, copied, found, order):
                return known
        children: list[str] = []
        logs = await self._write_logs(archive, snapshot.obj, copied, order)
        if order.archiving.children:
            logs.add(await self._write_children(archive, snapshot, rule, order, children))
        wanted: dict[str, Any] = {"with_children": order.archiving.children, "with_logs": order.archiving.logs}
        stored_with = {"children": tuple(sorted(children)), **logs.as_record()}
        # The children and logs may have taken minutes, and the grace counts from now.
        wanted["archived_at"] = order.record.archived_at + elapsed()
        record = order.record.model_copy(update=wanted | stored_with)
        if found is not None:
            record = found.joined_to(record)
        stored, at = await self._put(archive, copied, record, replaces=found is not None)
        return AcknowledgedCopy(copied, at, stored.location, stored.size, len(children), len(logs.paths))

    async def _write_logs(
        self, archive: Archive, obj: dict[str, Any], copied: ArchiveCopy, order: ArchiveOrder
    ) -> StoredLogs:
        if not order.archiving.logs or isinstance(archive, ConfirmingArchive):
            return StoredLogs()
        return await write_logs(
            archive, self.pod_logs, obj, copied.key, may_be_missing=order.may_lack_logs, gate=self.gates.logs
        )

    async def _write_children(
        self, archive: Archive, snapshot: Snapshot, rule: KindRule, order: ArchiveOrder, keys: list[str]
    ) -> StoredLogs:
        """Store the children and their logs; add the keys of the children."""
        cluster = await self.archives.find_cluster()
        stored, parent = StoredLogs(), get_text(snapshot.obj, "metadata.uid")

        async def write(child: _Child) -> None:
            one, copied = child.snapshot, child.copied
            found = await look_up(archive, copied.key)
            now = self.archives.now()
            if found is None or found.whole_record(order.of_child(), now=now) is None:
                found = await self._adopt(archive, copied, found, order)
            is_known = found is not None and order.lasts(found.stored)
            known = found.whole_record(order.of_child(), now=now) if found is not None and is_known else None
            if known is not None:
                keys.append(copied.key.path)
                stored.add(StoredLogs(list(known.logs), dict(known.log_problems)))
                return
            finish = finish_of(one.obj, child.rule)
            logs = await self._write_logs(archive, one.obj, copied, order)
            record = Record(
                archived_at=one.read_at,
                finished_at=finish.at if finish.finished else None,
                outcome=finish.outcome,
                rule=order.record.rule,
                with_logs=order.archiving.logs,
                parent=parent,
                **logs.as_record(),
            )
            if found is not None:
                record = found.joined_to(record)
            await self._put(archive, copied, record, replaces=found is not None)
            keys.append(copied.key.path)
            stored.add(logs)

        async with aclosing(self._find_children(snapshot.ref, rule, order, cluster)) as found:
            await _for_each(found, write, self.gates.children, snapshot.ref.namespace)
        return stored

    async def _adopt(
        self, archive: Archive, copied: ArchiveCopy, found: Found | None, order: ArchiveOrder
    ) -> Found | None:
        secrets = order.destination.secrets
        return await self._former.adopt(archive, copied, found, now=self.archives.now(), secrets=secrets)

    async def _acknowledged(
        self, archive: Archive, copied: ArchiveCopy, found: Found | None, order: ArchiveOrder
    ) -> AcknowledgedCopy | None:
        return await find_acknowledged(archive, copied, found, order.archiving, now=self.archives.now())

    async def _put(
        self, archive: Archive, copied: ArchiveCopy, record: Record, *, replaces: bool
    ) -> tuple[Stored, datetime]:
        """Store a document; return it with the instant of its acknowledgement.

        Raises:
            TtlError: See the port `Archive`; or the clock of the archive is too far ahead.
        """
        # If the clocks of the API server and of the archive are both behind, the grace counts from our own.
        archived_at = max(record.archived_at, self.archives.now())
        update = {"archived_at": archived_at, "redacted": copied.is_redacted, "cluster_id": copied.cluster_id}
        record = record.model_copy(update=update)
        stored = await archive.put(copied.key, Document(record, copied.text), replaces=replaces)
        return stored, acknowledged_at(archive, stored, archived_at=record.archived_at, now=self.archives.now())

    async def _find_children(
        self, root: ObjectRef, rule: KindRule, order: ArchiveOrder, cluster: ArchiveCluster
    ) -> AsyncGenerator[_Child]:
        async with aclosing(self.children.find(root, rule)) as pages:
            async for page in pages:
                for one in page.unreadable:
                    raise PermanentError(f"child {one.ref} of {root} cannot be read, so {root} is kept: {one.problem}")
                for child in page.children:
                    yield _Child(page.rule, child, _copy(child.obj, page.rule, order, cluster))


def _copy(obj: dict[str, Any], rule: KindRule, order: ArchiveOrder, cluster: ArchiveCluster) -> ArchiveCopy:
    try:
        return copy_of(obj, rule, cluster=cluster, secrets=order.destination.secrets)
    except ValueError as error:
        raise PermanentError(f"{ref_of(obj)} cannot be archived: {error}") from None


async def _for_each(
    found: AsyncIterator[_Child], act: Callable[[_Child], Awaitable[None]], gate: ByteGate, share: str
) -> None:
    """Act on each child, on `CHILDREN_AT_ONCE` at the same time; no more than these wait in memory."""
    running: set[asyncio.Future[None]] = set()
    try:
        async for one in found:
            size = len(one.copied.text)
            await gate.acquire(size, share)
            writing = asyncio.ensure_future(act(one))
            writing.add_done_callback(partial(_release, gate, size, share))
            running.add(writing)
            if len(running) >= CHILDREN_AT_ONCE:
                await _wait(running)
        while running:
            await _wait(running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _release(gate: ByteGate, size: int, share: str, _: asyncio.Future[None]) -> None:
    gate.release(size, share)


async def _wait(running: set[asyncio.Future[None]]) -> None:
    """Wait until some of them are done, remove these, and raise the first error of theirs."""
    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    running -= done
    for error in [task.exception() for task in done]:  # asyncio logs an error that is never asked for
        if error is not None:
            raise error


def _timer() -> Callable[[], timedelta]:
    """Measure the time from now on, in whole seconds."""
    now = asyncio.get_running_loop().time
    started = now()
    return lambda: timedelta(seconds=int(now() - started))
