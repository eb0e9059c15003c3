"""Systems with one deliberate mistake each about archives: checks that catch none of them would be worth nothing."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from shared.core.archive.archiving import ArchiveFact, Archiving
from shared.core.archive.copies import ArchiveCopy, copy_of
from shared.core.archive.document import Document
from shared.core.archive.layout import ArchiveKey, prefix_of
from shared.core.decision.facts import Context
from shared.core.decision.finish import finish_of
from shared.core.kinds.rule import KindRule
from shared.core.policy.archives import ArchiveDestination
from shared.core.values.objects import ANNOTATION_DOMAIN, get_text, ref_of
from shared.errors import PermanentError, TryLaterError
from shared.evaluation.archive_check import ArchiveCheck, find_wanted
from shared.evaluation.archive_identity import IdentifiedArchive, IdentifiedArchives
from shared.evaluation.children import ChildPage, Children
from shared.evaluation.evaluator import Evaluation, Evaluator
from shared.messages import Purpose, Timer, TimersSet
from shared.ports import Archive, Snapshot, Stored
from shared.usecases.archives.lookup import AcknowledgedCopy
from shared.usecases.archives.writer import ArchiveOrder, ArchiveWriter
from shared.usecases.handler import Handled, Handler
from shared.usecases.sweep import Sweep
from tests.archives import CLUSTER
from tests.builders import not_none
from tests.simulation.archive_store import SimArchive
from tests.simulation.archive_world import ArchiveCluster, ArchiveMutant

_Fact = ArchiveFact | None


# What proves that an object is archived.


class _Check(ArchiveCheck):
    """Whatever the archive holds, `prove` says it."""

    def prove(self, obj: Any, rule: KindRule, fact: ArchiveFact) -> ArchiveFact:
        raise NotImplementedError

    async def find(self, obj: Any, rule: KindRule, context: Context) -> _Fact:
        return await self.read_back(obj, rule, context)

    async def read_back(self, obj: Any, rule: KindRule, context: Context) -> _Fact:
        archiving = find_wanted(obj, rule, context)
        if archiving is None:
            return None
        uid, version = get_text(obj, "metadata.uid"), get_text(obj, "metadata.resourceVersion")
        return self.prove(obj, rule, ArchiveFact(archiving.to, uid, version, is_read_back=True))

    @property
    def world(self) -> Any:
        archives: Any = self.archives
        return archives.world


class _FactIgnored(_Check):
    """An object counts as archived since its finish, without a look."""

    def prove(self, obj: Any, rule: KindRule, fact: ArchiveFact) -> ArchiveFact:
        return replace(fact, acknowledged_at=finish_of(obj, rule).at)


class _EventTrusted(_Check):
    """The event `object.archived` is the proof."""

    def prove(self, obj: Any, rule: KindRule, fact: ArchiveFact) -> ArchiveFact:
        heard = self.world.process.hearsay.get((fact.uid, fact.resource_version))
        return replace(fact, acknowledged_at=heard.archived_at if heard else None)


class _Documents(_Check):
    """Some document is the proof; which one, says `is_proof`."""

    def is_proof(self, obj: Any, stored: Stored) -> bool:
        raise NotImplementedError

    async def read_back(self, obj: Any, rule: KindRule, context: Context) -> _Fact:
        fact = await super().read_back(obj, rule, context)
        if fact is None:
            return None
        archive = await self._open(not_none(find_wanted(obj, rule, context)), context)
        pages = [page async for page in archive.ls(prefix_of(CLUSTER.part))]
        found = [one.stored_at for page in pages for one in page if self.is_proof(obj, one)]
        return replace(fact, acknowledged_at=min(found, default=None))

    def prove(self, obj: Any, rule: KindRule, fact: ArchiveFact) -> ArchiveFact:
        return fact


class _UidOnly(_Documents):
    """A document of any version of the object is the proof."""

    def is_proof(self, obj: Any, stored: Stored) -> bool:
        return stored.key.uid == get_text(obj, "metadata.uid")


class _NameOnly(_Documents):
    """A document of any object of this name is the proof."""

    def is_proof(self, obj: Any, stored: Stored) -> bool:
        ref = ref_of(obj)
        return (stored.key.kind, stored.key.namespace, stored.key.name) == (ref.kind, ref.namespace, ref.name)


class _NeverReadBack(ArchiveCheck):
    """What was once acknowledged counts for ever."""

    async def read_back(self, obj: Any, rule: KindRule, context: Context) -> _Fact:
        fact = await self.find(obj, rule, context)
        return replace(fact, is_read_back=True) if fact else None


class _HeadOnly(ArchiveCheck):
    """That something is stored under the key is the proof: the bytes are not read."""

    async def _look(self, archiving: Archiving, copied: ArchiveCopy, context: Context) -> ArchiveFact:
        archive, key = await self._open(archiving, context), copied.key
        stored = await self._ask(archiving.to, archive.find(key))
        fact = ArchiveFact(archiving.to, key.uid, key.resource_version, is_read_back=True, children=True, logs=True)
        return replace(fact, acknowledged_at=stored.stored_at, location=stored.location) if stored else fact


class _SaysWhole(SimArchive):
    """A document that was stored without the children or logs that are wanted counts as whole."""

    async def read(self, key: ArchiveKey) -> Document:
        document = await super().read(key)
        record = document.record.model_copy(update={"with_children": True, "with_logs": True})
        return replace(document, record=record)


class _OutageIsProof(ArchiveCheck):
    """An archive that does not answer cannot keep anything."""

    async def find(self, obj: Any, rule: KindRule, context: Context) -> _Fact:
        return await self.read_back(obj, rule, context)

    async def read_back(self, obj: Any, rule: KindRule, context: Context) -> _Fact:
        try:
            return await super().read_back(obj, rule, context)
        except PermanentError:
            fact = await _FactIgnored(self.archives).read_back(obj, rule, context)
            self._away.clear()
            return fact


class _AnyArchive(ArchiveCheck):
    """A document in any archive is the proof, also in one that is not wanted any more."""

    async def _open(self, archiving: Any, context: Context) -> Any:
        archive = await super()._open(archiving, context)
        uids = [path for path in self.world.stores["main"].files if path]
        return await super()._open(replace(archiving, to="main"), context) if uids else archive

    @property
    def world(self) -> Any:
        archives: Any = self.archives
        return archives.world


# When it was acknowledged.


class _Acknowledged(ArchiveCheck):
    """Another instant counts as the acknowledgement."""

    def at(self, obj: Any, rule: KindRule, fact: ArchiveFact) -> Any:
        raise NotImplementedError

    async def find(self, obj: Any, rule: KindRule, context: Context) -> _Fact:
        return self._moved(await super().find(obj, rule, context), obj, rule)

    async def read_back(self, obj: Any, rule: KindRule, context: Context) -> _Fact:
        return self._moved(await super().read_back(obj, rule, context), obj, rule)

    def _moved(self, fact: _Fact, obj: Any, rule: KindRule) -> _Fact:
        if fact is None or fact.acknowledged_at is None:
            return fact
        return replace(fact, acknowledged_at=self.at(obj, rule, fact))


class _GraceFromFinish(_Acknowledged):
    def at(self, obj: Any, rule: KindRule, fact: ArchiveFact) -> Any:
        return finish_of(obj, rule).at


class _GraceIgnored(_Acknowledged):
    def at(self, obj: Any, rule: KindRule, fact: ArchiveFact) -> Any:
        return not_none(fact.acknowledged_at) - timedelta(days=1)


class _GraceFromRecord(SimArchive):
    """The store's own instant does not count: a put that takes long shortens the grace."""

    def _stored(self, key: ArchiveKey) -> Stored:
        record = Document.parse(self.store.files[key.path].data).record
        return replace(super()._stored(key), stored_at=record.archived_at)


class _AcknowledgedAtTimer(ArchiveWriter):
    """The fact is known when the timer fires, and not when the archive has answered."""

    async def write(self, snapshot: Snapshot, rule: KindRule, order: ArchiveOrder) -> Any:
        metadata = snapshot.obj["metadata"]
        archives: Any = self.archives
        heard = _Heard(snapshot.read_at)
        archives.world.process.hearsay[metadata["uid"], metadata["resourceVersion"]] = heard
        return await ArchiveWriter.write(self, snapshot, rule, order)


class _Heard:
    def __init__(self, at: Any) -> None:
        self.archived_at = at


# What is stored.


class _NoChildren(Children):
    async def find(self, root: Any, rule: KindRule, *_: Any, **__: Any) -> Any:
        return
        yield


class _ChildrenLater(ArchiveWriter):
    """The object is stored first, and then its children."""

    async def write(self, snapshot: Snapshot, rule: KindRule, order: ArchiveOrder) -> AcknowledgedCopy:
        none = replace(self, children=_NoChildren(self.children.cluster, self.children.kinds))
        written = await ArchiveWriter.write(none, snapshot, rule, order)
        archive = await self.archives.open(order.archiving.to, order.destination)
        if order.archiving.children:
            await self._write_children(archive, snapshot, rule, order, [])
        return written


class _FirstChildOnly(Children):
    """One page of children, and no further one."""

    async def find(self, root: Any, rule: KindRule, *_: Any, **__: Any) -> Any:
        async for page in super().find(root, rule):
            yield ChildPage(page.rule, page.children[:1])
            return


class _FirstChildWriter(ArchiveWriter):
    async def write(self, snapshot: Snapshot, rule: KindRule, order: ArchiveOrder) -> AcknowledgedCopy:
        few = replace(self, children=_FirstChildOnly(self.children.cluster, self.children.kinds))
        return await ArchiveWriter.write(few, snapshot, rule, order)


class _LogsForgotten(ArchiveWriter):
    async def _write_logs(self, archive: Any, obj: Any, copied: Any, order: ArchiveOrder) -> Any:
        plain = replace(order, archiving=replace(order.archiving, logs=False))
        return await ArchiveWriter._write_logs(self, archive, obj, copied, plain)


class _OnceOnly(ArchiveWriter):
    """An object of which a version is stored is not stored again."""

    async def write(self, snapshot: Snapshot, rule: KindRule, order: ArchiveOrder) -> AcknowledgedCopy:
        archive = await self.archives.open(order.archiving.to, order.destination)
        copied = copy_of(snapshot.obj, rule, cluster=CLUSTER, secrets=order.destination.secrets)
        async for page in archive.ls(prefix_of(copied.key.cluster)):
            for one in page:
                if one.key.uid == copied.key.uid and one.key.resource_version != copied.key.resource_version:
                    return AcknowledgedCopy(copied, one.stored_at, one.location)
        return await ArchiveWriter.write(self, snapshot, rule, order)


class _NewCopies(ArchiveWriter):
    """Each attempt stores a document of its own."""

    async def write(self, snapshot: Snapshot, rule: KindRule, order: ArchiveOrder) -> AcknowledgedCopy:
        obj = {**snapshot.obj, "archivedAt": snapshot.read_at.isoformat()}
        return await ArchiveWriter.write(self, replace(snapshot, obj=obj), rule, order)


class _DamageStays(SimArchive):
    """A damaged document is not replaced."""

    async def put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:
        return await super().put(key, document)


class _NewestOfAName(ArchiveWriter):
    """An archive that keeps one object of each name."""

    async def write(self, snapshot: Snapshot, rule: KindRule, order: ArchiveOrder) -> AcknowledgedCopy:
        written = await ArchiveWriter.write(self, snapshot, rule, order)
        archive = await self.archives.open(order.archiving.to, order.destination)
        key = written.copied.key
        async for page in archive.ls(key.path.rpartition("/")[0]):
            await archive.delete([one.key for one in page if one.key.uid != key.uid])
        return written


class _LostAnswerIsStored(SimArchive):
    """A put that failed counts as stored."""

    async def put(self, key: ArchiveKey, document: Document, *, replaces: bool = False) -> Stored:
        try:
            return await super().put(key, document, replaces=replaces)
        except TryLaterError:
            return Stored(key, document.record.archived_at, 1, "sim://nowhere")


# Who asks for it.


class _Deaf(ArchiveCluster):
    names: tuple[str, ...] = ("archive",)
    kinds: tuple[str, ...] = ("Job",)

    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        if obj["kind"] not in self.kinds:
            return obj
        said = obj["metadata"].get("annotations", {})
        dropped = {f"{ANNOTATION_DOMAIN}/{name}" for name in self.names}
        annotations = {name: text for name, text in said.items() if name not in dropped}
        return obj | {"metadata": obj["metadata"] | {"annotations": annotations}}


class _OptOutIsDefault(ArchiveCluster):
    """What cannot be read counts as an opt-out."""

    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        name = f"{ANNOTATION_DOMAIN}/archive"
        said = obj["metadata"].get("annotations", {})
        if said.get(name) in (None, "true", "false", "main", "second"):
            return obj
        return obj | {"metadata": obj["metadata"] | {"annotations": said | {name: "false"}}}


class _NamespaceDeaf(_Deaf):
    kinds = ("Namespace",)


class _HoldIgnored(_Deaf):
    names = ("hold",)


class _WithoutVersion(ArchiveCluster):
    def options(self, uid: str, version: str, propagation: str) -> Any:
        return replace(super().options(uid, version, propagation), resource_version=None)


class _DecidedOnce(Evaluator):
    """A policy that arrives between the decision and the DELETE does not count, and neither does a read-back."""

    async def _read_back(self, found: Evaluation[Any], snapshot: Snapshot, rule: KindRule) -> Evaluation[Any]:
        return found

    def is_still_due(self, *_about: Any) -> bool:
        return True


# Timers.


class _RetryLost(Handler):
    """An attempt that has to be repeated sets no timer."""

    async def handle(self, timer: Timer) -> Handled | None:
        answer = await Handler.handle(self, timer)
        return None if isinstance(answer, TimersSet) else answer


class _NotArchivedForgotten(Handler):
    """`expire` keeps an object that is not archived, and has it archived by no one."""

    async def _carry_out(self, *about: Any, **options: Any) -> Handled | None:
        answer = await Handler._carry_out(self, *about, **options)
        if not isinstance(answer, TimersSet):
            return answer
        timers = tuple(timer for timer in answer.timers if timer.purpose is not Purpose.ARCHIVE)
        return TimersSet(timers=timers) if timers else None


class _NeverArchives(Handler):
    async def handle(self, timer: Timer) -> Handled | None:
        return None


class _HotLoop(Handler):
    """An attempt that failed is repeated at once."""

    async def handle(self, timer: Timer) -> Handled | None:
        answer = await Handler.handle(self, timer)
        return TimersSet(timers=(timer,)) if isinstance(answer, TimersSet) else answer


class _ArchivesUnswept(Sweep):
    async def _archive_later(self, rule: KindRule, snapshot: Snapshot, work: Any) -> TimersSet | None:
        return None


class _NothingSwept(Sweep):
    async def _handle(self, rule: KindRule, found: Any, work: Any) -> None:
        pass


class _IdentityIgnored(IdentifiedArchives):
    """What is at the place of an archive is the archive."""

    async def open(self, name: str, destination: ArchiveDestination) -> Archive:
        return await self.archives.open(name, destination)


class _CheckedOnce(IdentifiedArchives):
    """An archive whose marker was right once is not looked at again."""

    async def open(self, name: str, destination: ArchiveDestination) -> Archive:
        archive = await super().open(name, destination)
        if isinstance(archive, IdentifiedArchive) and not isinstance(archive, _Checked):
            archive.__class__ = _Checked
        return archive


class _Checked(IdentifiedArchive):
    checked = ""

    async def identify(self, *, creates: bool = False) -> str:
        self.checked = self.checked or await super().identify(creates=creates)
        return self.checked


def _mutant(*rules: str, **parts: Any) -> ArchiveMutant:
    return ArchiveMutant(rules=frozenset(rules), **parts)


ARCHIVE_MUTANTS: Mapping[str, ArchiveMutant] = {
    "fact-ignored": _mutant("S6", check=_FactIgnored),
    "sweep-deletes-unarchived": _mutant("S6", sweep_check=_FactIgnored),
    "acknowledged-at-timer": _mutant("S6", check=_EventTrusted, writer=_AcknowledgedAtTimer),
    "event-trusted": _mutant("S6", check=_EventTrusted),
    "uid-only": _mutant("S6", check=_UidOnly),
    "another-key": _mutant("S6", check=_NameOnly),
    "another-archive": _mutant("S6", check=_AnyArchive),
    "never-read-back": _mutant("S6", check=_NeverReadBack, needs_rot=True),
    "bytes-not-read": _mutant("S6", check=_HeadOnly, needs_rot=True),
    "lack-ignored": _mutant("S6", archive=_SaysWhole),
    "outage-is-proof": _mutant("S6", check=_OutageIsProof),
    "lost-answer-is-stored": _mutant("S6", archive=_LostAnswerIsStored, check=_EventTrusted),
    "delete-without-version": _mutant("S2", cluster=_WithoutVersion),
    "decided-once": _mutant("S6", "S3", evaluator=_DecidedOnce, needs_rot=True),
    "grace-ignored": _mutant("S1", check=_GraceIgnored),
    "grace-from-finish": _mutant("S1", check=_GraceFromFinish),
    "grace-from-record": _mutant("S1", archive=_GraceFromRecord),
    "annotation-ignored": _mutant("S6", "S3", cluster=_Deaf),
    "namespace-ignored": _mutant("S6", "S3", cluster=_NamespaceDeaf),
    "unreadable-is-opt-out": _mutant("S3", cluster=_OptOutIsDefault),
    "hold-ignored": _mutant("S3", cluster=_HoldIgnored),
    "children-later": _mutant("children", writer=_ChildrenLater),
    "first-child-only": _mutant("children", writer=_FirstChildWriter),
    "logs-forgotten": _mutant("children", writer=_LogsForgotten),
    "changed-not-archived": _mutant("L1", writer=_OnceOnly),
    "new-copies": _mutant("copies", writer=_NewCopies),
    "damage-stays": _mutant("L1", archive=_DamageStays, needs_rot=True),
    "newest-of-a-name": _mutant("kept", writer=_NewestOfAName),
    "never-archives": _mutant("L1", archival=_NeverArchives),
    "archives-not-swept": _mutant("L1", sweep=_ArchivesUnswept),
    "nothing-swept": _mutant("L1", sweep=_NothingSwept),
    "retry-lost": _mutant("L1", archival=_RetryLost, sweep=_NothingSwept),
    "not-archived-forgotten": _mutant("L1", expiry=_NotArchivedForgotten, sweep=_ArchivesUnswept),
    "hot-loop": _mutant("storm", archival=_HotLoop),
    "identity-ignored": _mutant("S6", identified=_IdentityIgnored, needs_swaps=True),
    "identity-checked-once": _mutant("S6", identified=_CheckedOnce, needs_swaps=True),
}
