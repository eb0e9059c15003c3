"""A restore: it never overwrites, and never lets an object run unasked."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.core.archive.document import Document, Record, canonical
from shared.core.archive.draft import parse_field_path
from shared.core.values.objects import ObjectRef, get_annotations, ref_of
from shared.errors import AbsentKindError, ConflictError, ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.ports import Snapshot
from shared.usecases.restore import Restored, RestoreOptions, ServedKind, restore
from tests.builders import NOW, copied, having, job, owned_by, pod, shipped_kinds, without

pytestmark = pytest.mark.anyio
QUEUE = "kueue.x-k8s.io/queue-name"
PLURALS = {"Job": "jobs", "Pod": "pods", "Secret": "secrets", "CronJob": "cronjobs", "Workflow": "workflows"}
OWNER_ENDS = ("owner-uid", "2026-01-02T03:04:05Z", False)
SUSPENDED, MAY_RUN = RestoreOptions(suspended=True), RestoreOptions(may_run=True)


@dataclass
class FakeCreator:
    """The API server; a test sets beforehand what exists and what fails.

    Attributes:
        objects: What exists, by kind, namespace and name.
        created: What was created.
        dry_runs: What was checked.
        failures: Errors by the name of the object, and whether of a dry run.
        drops: The fields of the spec that no schema has.
        loses: The path of a field that is not stored.
        gates: The scheduling gates that a webhook adds.
        queues: Whether a webhook sets the queue of an object that has none, in a dry run or after it.
    """

    objects: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    created: list[dict[str, Any]] = field(default_factory=list)
    dry_runs: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[tuple[str, bool], TtlError] = field(default_factory=dict)
    unreadable: TtlError | None = None
    drops: tuple[str, ...] = ()
    loses: str = ""
    queues: tuple[bool, ...] = ()
    gates: tuple[str, ...] = ()

    async def find_kind(self, api_version: str, kind: str) -> ServedKind:
        if kind not in PLURALS:
            raise AbsentKindError(kind)
        return ServedKind(api_version, PLURALS[kind], True, kind != "Workflow")

    async def read(self, kind: ServedKind, ref: ObjectRef) -> Snapshot | None:
        if self.unreadable:
            raise self.unreadable
        found = self.objects.get((ref.kind, ref.namespace, ref.name))
        return None if found is None else Snapshot(found, NOW)

    async def create(self, kind: ServedKind, obj: dict[str, Any], *, dry_run: bool) -> Snapshot:
        if error := self.failures.get((obj["metadata"]["name"], dry_run)):
            raise error
        (self.dry_runs if dry_run else self.created).append(obj)
        stored = having(copied(obj), "metadata.uid", "new")
        for name in self.drops:
            stored["spec"].pop(name, None)
        for name in self.gates:
            stored["spec"]["schedulingGates"] = [*stored["spec"]["schedulingGates"], {"name": name}]
        if dry_run in self.queues:
            stored = having(stored, "metadata.labels", {QUEUE: "default"})
        return Snapshot(without(stored, self.loses) if self.loses else stored, NOW)

    def add(self, obj: dict[str, Any]) -> None:
        ref = ref_of(obj)
        self.objects[ref.kind, ref.namespace, ref.name] = obj


def document(obj: dict[str, Any], **record: Any) -> Document:
    return Document(Record(archived_at=NOW, **record), canonical(obj))


FINISHED = job(complete=NOW, ttl=60)


async def restored(
    creator: FakeCreator, options: RestoreOptions = SUSPENDED, *objects: dict[str, Any], **record: Any
) -> list[Restored]:
    documents = [document(one, **record) for one in objects or (FINISHED,)]
    return await restore(documents, options, creator=creator, kinds=shipped_kinds())


async def test_job_comes_back_suspended_and_held() -> None:
    creator = FakeCreator()
    (one,) = await restored(creator)
    (job,) = creator.created
    assert job["spec"]["suspend"] is True
    assert get_annotations(job)["hold"] == "restored from the archive"
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert "uid" not in job["metadata"]
    assert creator.dry_runs == [job]
    assert one.draft.is_suspended


async def test_job_without_a_word_about_running_is_refused() -> None:
    creator = FakeCreator()
    with pytest.raises(TtlError, match=r"would run again; set --suspended .*or --yes-run-again"):
        await restored(creator, RestoreOptions())
    assert not creator.dry_runs


async def test_job_runs_again_if_asked() -> None:
    creator = FakeCreator()
    (one,) = await restored(creator, RestoreOptions(may_run=True, hold=False))
    (job,) = creator.created
    assert "suspend" not in job["spec"]
    assert job["spec"]["ttlSecondsAfterFinished"] == 60
    assert not get_annotations(job)
    assert one.draft.runs


async def test_dry_run_creates_nothing() -> None:
    creator = FakeCreator()
    await restored(creator, RestoreOptions(suspended=True, dry_run=True))
    assert (len(creator.dry_runs), creator.created) == (1, [])


@pytest.mark.parametrize("uid", [FINISHED["metadata"]["uid"], "another"])
async def test_existing_object_is_never_overwritten(uid: str) -> None:
    creator = FakeCreator()
    creator.add(having(FINISHED, "metadata.uid", uid))
    with pytest.raises(TtlError, match=r"Job ci/build-42 exists .*never overwrites"):
        await restored(creator)
    assert not creator.dry_runs


@pytest.mark.parametrize("dry_run", [True, False])
async def test_object_that_was_created_meanwhile_is_not_overwritten(dry_run: bool) -> None:
    creator = FakeCreator(failures={("build-42", dry_run): ConflictError("exists")})
    with pytest.raises(TtlError, match="was created by another client, and a restore never overwrites"):
        await restored(creator)


async def test_object_that_the_server_refuses_is_not_created() -> None:
    creator = FakeCreator(failures={("build-42", True): PermanentError("namespace not found")})
    with pytest.raises(TtlError, match="Job ci/build-42 cannot be restored: namespace not found"):
        await restored(creator)
    assert not creator.created


async def test_forbidden_and_busy_are_errors() -> None:
    creator = FakeCreator(failures={("build-42", True): ForbiddenError("create is forbidden")})
    with pytest.raises(TtlError, match="create is forbidden"):
        await restored(creator)
    creator = FakeCreator(failures={("build-42", True): TryLaterError("busy")})
    with pytest.raises(TryLaterError):
        await restored(creator)


async def test_redacted_secret_is_refused_with_the_reason() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ci"}, "data": {"a": ""}}
    with pytest.raises(TtlError, match="its data is not in the archive, because the archive main does not have `secr"):
        await restored(FakeCreator(), RestoreOptions(archive="main"), secret, redacted=True)


async def test_secret_with_its_data_comes_back() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ci"}, "data": {"a": "eA=="}}
    creator = FakeCreator()
    await restored(creator, RestoreOptions(), secret)
    assert creator.created == [secret]


async def test_kind_that_is_not_served_is_refused() -> None:
    run = {"apiVersion": "tekton.dev/v1beta1", "kind": "PipelineRun", "metadata": {"name": "r", "namespace": "ci"}}
    with pytest.raises(TtlError, match=r"does not serve PipelineRun of tekton\.dev/v1beta1"):
        await restored(FakeCreator(), MAY_RUN, run)


async def test_kind_that_cannot_be_suspended_is_refused() -> None:
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "ci"}}
    with pytest.raises(TtlError, match="a Job cannot be created suspended"):
        await restored(FakeCreator(), SUSPENDED, job)
    with pytest.raises(TtlError, match="would run again; set --yes-run-again"):
        await restored(FakeCreator(), RestoreOptions(), job)


async def test_suspension_that_the_server_drops_is_refused() -> None:
    creator = FakeCreator(drops=("suspend",))
    with pytest.raises(TtlError, match="does not store the fields that suspend it"):
        await restored(creator)
    assert not creator.created


async def test_gate_that_a_webhook_adds_is_not_called_a_start() -> None:
    creator = FakeCreator(gates=("example.com/quota",))
    with pytest.raises(
        TtlError, match=r"cannot be restored suspended: .* changes the fields that suspend it"
    ) as raised:
        await restored(creator, SUSPENDED, pod())
    assert "would run again" not in str(raised.value)
    assert not creator.created


async def test_field_that_the_server_drops_is_a_note() -> None:
    (one,) = await restored(FakeCreator(drops=("backoffLimit",)))
    assert any("does not store spec.backoffLimit" in note for note in one.notes)


async def test_owner_that_is_gone_is_left_out() -> None:
    (one,) = await restored(creator := FakeCreator(), SUSPENDED, owned_by(FINISHED, "CronJob"))
    assert "ownerReferences" not in creator.created[0]["metadata"]
    assert any("CronJob owner, uid owner-uid, no longer exists" in note for note in one.notes)


@pytest.mark.parametrize(("uid", "ends", "is_kept"), [("owner-uid", None, True), ("2", None, False), OWNER_ENDS])
async def test_owner_stays_if_it_is_the_same_object(uid: str, ends: str | None, is_kept: bool) -> None:
    creator = FakeCreator()
    metadata = {"namespace": "ci", "name": "owner", "uid": uid, "deletionTimestamp": ends}
    creator.add({"kind": "CronJob", "metadata": metadata})
    await restored(creator, SUSPENDED, owned_by(FINISHED, "CronJob"))
    assert ("ownerReferences" in creator.created[0]["metadata"]) is is_kept


async def test_owner_of_a_kind_that_is_gone_is_left_out() -> None:
    await restored(creator := FakeCreator(), SUSPENDED, owned_by(FINISHED, "Render", api_version="example.com/v1"))
    assert "ownerReferences" not in creator.created[0]["metadata"]


async def test_nothing_is_created_if_a_child_is_refused() -> None:
    creator = FakeCreator(failures={("build-42-x7k2p", True): PermanentError("no")})
    with pytest.raises(TtlError, match="Pod ci/build-42-x7k2p cannot be restored"):
        await restored(creator, SUSPENDED, FINISHED, pod())
    assert not creator.created


async def test_children_come_after_their_object() -> None:
    creator = FakeCreator()
    found = await restored(creator, SUSPENDED, FINISHED, pod())
    assert [one["kind"] for one in creator.created] == ["Job", "Pod"]
    assert [one.draft.is_suspended for one in found] == [True, True]
    assert creator.created[1]["spec"]["schedulingGates"] == [{"name": "ttlafterfinished.dev/restored"}]


async def test_failure_after_the_first_creation_names_what_exists() -> None:
    creator = FakeCreator(failures={("build-42-x7k2p", False): TryLaterError("busy")})
    with pytest.raises(TtlError, match="Pod ci/build-42-x7k2p: busy; restored before that: Job ci/build-42"):
        await restored(creator, SUSPENDED, FINISHED, pod())
    assert len(creator.created) == 1


def finished_workflow(**status: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ci", "labels": {"workflows.argoproj.io/completed": "true"}}
    status = {"phase": "Succeeded", **status}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": metadata,
        "spec": {},
        "status": status,
    }


async def test_finished_object_whose_status_is_stored_needs_no_word() -> None:
    creator = FakeCreator()
    await restored(creator, RestoreOptions(), finished_workflow())
    assert creator.created[0]["status"] == {"phase": "Succeeded"}


@pytest.mark.parametrize("options", [RestoreOptions(), RestoreOptions(dry_run=True), RestoreOptions(hold=False)])
@pytest.mark.parametrize("lost", ["status", "metadata.labels", "status.phase"])
async def test_finished_object_is_refused_if_the_server_does_not_store_what_makes_it_finished(
    options: RestoreOptions, lost: str
) -> None:
    creator = FakeCreator(loses=lost)
    with pytest.raises(TtlError, match=r"Workflow ci/w would run again; set --suspended .*or --yes-run-again"):
        await restored(creator, options, finished_workflow())
    assert (len(creator.dry_runs), creator.created) == (1, [])


@pytest.mark.parametrize("options", [SUSPENDED, MAY_RUN])
async def test_finished_object_whose_status_is_not_stored_comes_back_if_asked(options: RestoreOptions) -> None:
    creator = FakeCreator(loses="status")
    (one,) = await restored(creator, options, finished_workflow())
    assert (one.draft.runs, one.draft.is_suspended) == (options.may_run, options.suspended)
    assert any(note.startswith("its status is left out") for note in one.notes)
    assert not any(note.startswith("its status is restored") for note in one.notes)
    assert "status" not in creator.created[0]


async def test_ttl_in_a_stored_status_is_removed() -> None:
    template, creator = {"ttlStrategy": {"secondsAfterCompletion": 60}}, FakeCreator()
    (one,) = await restored(creator, RestoreOptions(), finished_workflow(storedWorkflowTemplateSpec=template))
    assert creator.created[0]["status"]["storedWorkflowTemplateSpec"] == {"ttlStrategy": {}}
    assert any("secondsAfterCompletion: 60 is removed" in note for note in one.notes)


QUEUED = having(FINISHED, "metadata.labels", {QUEUE: "team-a"})


async def test_queued_job_comes_back_without_its_queue() -> None:
    (one,) = await restored(creator := FakeCreator(), SUSPENDED, QUEUED)
    assert "labels" not in creator.created[0]["metadata"]
    assert (one.draft.is_suspended, one.draft.queue) == (True, "team-a")
    assert any(note.startswith(f"label {QUEUE}=team-a is left out: Kueue ") for note in one.notes)


async def test_queued_job_that_may_run_keeps_its_queue() -> None:
    await restored(creator := FakeCreator(), MAY_RUN, QUEUED)
    assert creator.created[0]["metadata"]["labels"] == {QUEUE: "team-a"}


async def test_job_whose_queue_a_webhook_sets_is_refused() -> None:
    creator = FakeCreator(queues=(True, False))
    with pytest.raises(TtlError, match=f"would run again: the cluster sets label {QUEUE}=default, so Kueue starts it"):
        await restored(creator)
    assert not creator.created


async def test_suspended_job_whose_queue_a_webhook_sets_runs_if_it_may() -> None:
    creator = FakeCreator(queues=(True, False))
    (one,) = await restored(creator, MAY_RUN, having(FINISHED, "spec.suspend", True))
    assert (one.draft.runs, one.draft.is_suspended) == (True, False)


async def test_queue_that_the_dry_run_did_not_show_is_an_error_that_names_the_object() -> None:
    creator = FakeCreator(queues=(False,))
    with pytest.raises(TtlError, match=r"so Kueue starts it.*; restored before that: Job ci/build-42"):
        await restored(creator)


LEAVE_OUT = RestoreOptions(suspended=True, leave_out=(parse_field_path("spec.backoffLimit"),))


async def test_field_is_left_out_if_asked() -> None:
    (one, _) = await restored(creator := FakeCreator(), LEAVE_OUT, FINISHED, pod())
    assert "backoffLimit" not in creator.created[0]["spec"]
    assert "left out, as --leave-out says: spec.backoffLimit" in one.notes


async def test_field_that_no_object_has_is_an_error() -> None:
    with pytest.raises(TtlError, match=r"--leave-out spec\.backoffLimit: expected a field of Pod ci/build-42-x7k2p;"):
        await restored(creator := FakeCreator(), LEAVE_OUT, pod())
    assert not creator.dry_runs


async def test_job_that_is_no_longer_suspended_without_a_field_is_refused() -> None:
    options = RestoreOptions(leave_out=(parse_field_path("spec.suspend"),))
    with pytest.raises(TtlError, match="would run again; set --suspended"):
        await restored(FakeCreator(), options, having(FINISHED, "spec.suspend", True))


async def test_refusal_names_the_option_that_leaves_its_field_out() -> None:
    error = ForbiddenError('jobs "build-42" is forbidden: spec.backoffLimit: Invalid value: 9')
    with pytest.raises(TtlError, match=r"to restore it without that field, set --leave-out spec\.backoffLimit$"):
        await restored(FakeCreator(failures={("build-42", True): error}))
    error = ForbiddenError('User "system:serviceaccount:a:b" cannot create resource "jobs" in spec.backoffLimit')
    with pytest.raises(TtlError, match=r"in spec\.backoffLimit$"):
        await restored(FakeCreator(failures={("build-42", True): error}))
