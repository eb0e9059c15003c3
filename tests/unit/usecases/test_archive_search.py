"""The search in an archive: by its keys alone."""

from datetime import timedelta
from typing import Any

import pytest

from shared.core.archive.layout import prefix_of
from shared.errors import AbsentDocumentError, TryLaterError, TtlError
from shared.usecases.archives.search import ArchiveSelection, Wanted, choose, find_versions, list_selected
from tests.archives import CLUSTER, FakeArchive
from tests.builders import NOW, having, job, pod

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)
WHAT = "job ci/build-42"


def is_job(group: str, kind: str) -> bool:
    return (group, kind) == ("batch", "Job")


def version(obj: dict[str, Any], text: str) -> dict[str, Any]:
    return having(obj, "metadata.resourceVersion", text)


async def names(archive: FakeArchive, selection: ArchiveSelection) -> list[str]:
    return [one.key.name async for page in list_selected(archive, selection) for one in page]


@pytest.fixture
def archive() -> FakeArchive:
    archive = FakeArchive(page=2)
    archive.add(job(name="old"), at=NOW - 9 * DAY)
    archive.add(job(name="new"), at=NOW)
    archive.add(job(name="other", namespace="web"), at=NOW)
    archive.add(pod(name="new-x"), at=NOW)
    archive.add({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}})
    archive.add(job(name="elsewhere"), cluster="test")
    return archive


async def test_whole_cluster_is_one_listing(archive: FakeArchive) -> None:
    assert await names(archive, ArchiveSelection(CLUSTER.part)) == ["n", "old", "new", "new-x", "other"]
    assert archive.listed == [prefix_of(CLUSTER.part)]


async def test_namespace_is_one_listing(archive: FakeArchive) -> None:
    assert await names(archive, ArchiveSelection(CLUSTER.part, ["ci"])) == ["old", "new", "new-x"]
    assert archive.listed == [prefix_of(CLUSTER.part, "ci")]


async def test_kind_in_all_namespaces(archive: FakeArchive) -> None:
    assert await names(archive, ArchiveSelection(CLUSTER.part, None, is_job)) == ["old", "new", "other"]


async def test_cluster_scoped_objects_are_in_no_namespace(archive: FakeArchive) -> None:
    assert await names(archive, ArchiveSelection(CLUSTER.part, [""])) == ["n"]


async def test_since_lists_only_the_days_after_it(archive: FakeArchive) -> None:
    assert await names(archive, ArchiveSelection(CLUSTER.part, ["ci"], is_job, since=(NOW - 2 * DAY).date())) == ["new"]
    assert archive.listed == [prefix_of(CLUSTER.part, "ci", "Job.v1.batch", NOW.date().isoformat())]


async def test_name_is_not_a_prefix(archive: FakeArchive) -> None:
    archive.add(job(name="new-2"))
    assert await names(archive, ArchiveSelection(CLUSTER.part, ["ci"], is_job, "new")) == ["new"]


async def test_absent_namespace_has_nothing(archive: FakeArchive) -> None:
    assert await names(archive, ArchiveSelection(CLUSTER.part, ["absent"], is_job)) == []


async def test_no_document_is_read(archive: FakeArchive) -> None:
    await names(archive, ArchiveSelection(CLUSTER.part))
    await find_versions(archive, ArchiveSelection(CLUSTER.part, ["ci"], is_job, "new"))
    assert archive.calls["read"] == 0


async def test_versions_are_found_on_all_days_the_newest_first() -> None:
    archive = FakeArchive()
    for days, text in ((3, "9"), (0, "100"), (1, "50")):
        archive.add(version(job(), text), at=NOW - days * DAY)
    archive.add(version(job(), "99"), at=NOW)  # the same second
    found = await find_versions(archive, ArchiveSelection(CLUSTER.part, ["ci"], is_job, "build-42"))
    assert [one.key.resource_version for one in found] == ["100", "99", "50", "9"]


async def test_error_of_the_archive_is_raised(archive: FakeArchive) -> None:
    archive.failure = TryLaterError("away")
    with pytest.raises(TryLaterError):
        await names(archive, ArchiveSelection(CLUSTER.part))
    with pytest.raises(TryLaterError):
        await find_versions(archive, ArchiveSelection(CLUSTER.part, ["ci"], is_job, "new"))


async def versions() -> Any:
    archive = FakeArchive()
    archive.add(version(job(uid="first"), "10"), at=NOW - 2 * DAY)
    archive.add(version(job(uid="first"), "20"), at=NOW - DAY)
    archive.add(version(job(uid="second"), "30"), at=NOW)
    return await find_versions(archive, ArchiveSelection(CLUSTER.part, ["ci"], is_job, "build-42"))


async def test_newest_object_is_chosen_and_the_others_are_named() -> None:
    chosen = choose(await versions(), Wanted(), what=WHAT)
    assert (chosen.stored.key.uid, chosen.versions) == ("second", 1)
    assert [one.key.uid for one in chosen.others] == ["first"]
    assert "first" in chosen.describe_others()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(uid="first"), "20"),
        (Wanted(resource_version="10"), "10"),
        (Wanted(at=NOW - DAY), "20"),
        (Wanted(at=NOW - 2 * DAY), "10"),
        (Wanted(uid="first", at=NOW - 2 * DAY), "10"),
    ],
)
async def test_version_that_is_asked_for_is_chosen(wanted: Wanted, expected: str) -> None:
    assert choose(await versions(), wanted, what=WHAT).stored.key.resource_version == expected


@pytest.mark.parametrize(
    "wanted", [Wanted(uid="third"), Wanted(resource_version="11"), Wanted(at=NOW - 3 * DAY), Wanted("second", "10")]
)
async def test_version_that_is_not_stored_is_an_error_with_those_that_are(wanted: Wanted) -> None:
    with pytest.raises(AbsentDocumentError, match=r"none is stored with .*; stored: uid second, resource version 30"):
        choose(await versions(), wanted, what=WHAT)


async def test_absent_object_is_an_error() -> None:
    with pytest.raises(AbsentDocumentError, match="job ci/build-42 is not in the archive"):
        choose([], Wanted(), what=WHAT)


async def test_name_of_several_kinds_is_ambiguous() -> None:
    archive = FakeArchive()
    archive.add(having(job(), "apiVersion", "batch.volcano.sh/v1alpha1"))
    archive.add(job())
    found = await find_versions(archive, ArchiveSelection(CLUSTER.part, ["ci"], None, "build-42"))
    with pytest.raises(TtlError, match=r"ambiguous.*expected one of Job\.batch, Job\.batch\.volcano\.sh"):
        choose(found, Wanted(), what=WHAT)


async def test_versions_of_an_api_are_one_kind() -> None:
    archive = FakeArchive()
    run = {"kind": "PipelineRun", "metadata": job()["metadata"]}
    archive.add(version({"apiVersion": "tekton.dev/v1beta1", **run}, "10"), at=NOW - DAY)
    archive.add(version({"apiVersion": "tekton.dev/v1", **run}, "20"))
    found = await find_versions(archive, ArchiveSelection(CLUSTER.part, ["ci"], None, "build-42"))
    assert choose(found, Wanted(), what=WHAT).versions == 2
