"""The checks of doctor about archives."""

from dataclasses import dataclass, field
from datetime import datetime
from math import ceil, floor
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.archive.archive import ProbeResult
from shared.adapters.archive.open_archive import open_archive
from shared.core.archive.identity import KnownArchive, Marker
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import Policy
from shared.devserver.apiserver.resources import NAMESPACES
from shared.doctor import archives
from shared.doctor.archives import ArchivePolicy, check_archives, check_unacknowledged, compare_store_clock
from shared.doctor.findings import Finding, Level
from shared.errors import ForbiddenError, PermanentError, TryLaterError, TtlError
from shared.installation.place import Place
from shared.safeguards.archive_ids import ReadArchiveIds
from shared.safeguards.state_schema import StateContents
from tests.archives import FakeArchive, FakeArchives, archiving
from tests.builders import JOB, NOW, ago, job, later
from tests.fakes import FakeClock, FakeCluster

pytestmark = pytest.mark.anyio
PLACE = Place("ttl-after-finished", manifests="knative", options=("--context=x",))
URL = "s3://bucket/prefix"


@dataclass
class Opened:
    """What `open_archive` opens: a store whose probe finds out what the test has set."""

    result: ProbeResult = field(default_factory=lambda: ProbeResult("s3://bucket/probe/x", {}, later(1)))
    marker: Marker | None = None
    name: str = "main"
    location: str = URL

    async def probe(self, name: str) -> ProbeResult:
        assert "/" not in name
        return self.result

    async def read_marker(self) -> Marker | None:
        if problem := self.result.problems.get("write"):
            raise problem
        return self.marker

    async def is_empty(self) -> bool:
        return True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    found = Opened()
    monkeypatch.setattr(archives, "open_archive", lambda *_: found)
    return found


async def check(
    *, is_local: bool = False, remembered: str = "", cluster: FakeCluster | None = None, **destination: Any
) -> list[Finding]:
    policy = Policy.model_validate({"archives": {"main": destination or {"url": URL}}})
    known = {"main": KnownArchive(remembered, URL)} if remembered else {}
    ids = ReadArchiveIds((StateContents(archives=known),))
    given = ArchivePolicy(policy, "policy.yaml", is_local, "east", ids)
    found = await check_archives(cluster or FakeCluster(), Catalogue((JOB,)), given, FakeClock(), place=PLACE)
    return [one for one in found if (one.what == "archive: cluster") == (cluster is not None)]


@pytest.mark.usefixtures("opened")
async def test_cluster_is_named_with_its_id() -> None:
    cluster = FakeCluster()
    (found,) = await check(cluster=cluster)
    uid = cluster.store.get(NAMESPACES, "", "kube-system")["metadata"]["uid"]
    expected = f"east (id {uid}): the keys of its documents begin with v1/east.{uid[:8]}/"
    assert (found.what, found.level, found.detail) == ("archive: cluster", Level.OK, expected)


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize(("is_local", "level"), [(True, Level.FAIL), (False, Level.WARN)])
async def test_unreadable_id_of_the_cluster_names_the_right(is_local: bool, level: Level) -> None:
    cluster = FakeCluster()
    cluster.fail("get-namespace", ForbiddenError("403"), on="kube-system")
    (found,) = await check(cluster=cluster, is_local=is_local)
    assert (found.level, "grant get on namespace kube-system" in found.detail) == (level, True)


def levels(findings: list[Finding]) -> list[tuple[str, Level]]:
    return [(one.what, one.level) for one in findings]


@pytest.mark.usefixtures("opened")
async def test_archive_that_accepts_a_probe_is_fine() -> None:
    assert levels(await check()) == [
        ("archive main", Level.OK),
        ("archive main: clock", Level.OK),
        ("archive: oldest unacknowledged", Level.OK),
    ]


@pytest.mark.parametrize("found", ["", "another"])
async def test_destination_that_is_another_archive_fails_and_gets_no_probe(opened: Opened, found: str) -> None:
    opened.marker = Marker(found, NOW, "east") if found else None
    opened.result = ProbeResult("", {"read": TtlError("the probe was written")})

    (finding,) = await check(remembered="expected-id")

    assert finding.level is Level.FAIL
    assert "expected archive expected-id" in finding.detail
    assert found in finding.detail
    assert "archive adopt --archive main --context=x" in (finding.fix or "")


async def test_archive_with_the_remembered_marker_is_fine(opened: Opened) -> None:
    opened.marker = Marker("expected-id", NOW, "east")
    assert levels(await check(remembered="expected-id"))[0] == ("archive main", Level.OK)


@pytest.mark.parametrize(
    ("error", "is_local", "level", "text"),
    [
        (ForbiddenError("403"), True, Level.FAIL, "cannot write: 403"),
        (ForbiddenError("403"), False, Level.WARN, "cannot be checked with the credentials of this machine: 403"),
        (TryLaterError("no answer"), False, Level.FAIL, "does not accept a write now"),
        (PermanentError("no such bucket"), False, Level.FAIL, "cannot write: no such bucket"),
    ],
)
async def test_write_that_fails_is_explained(
    opened: Opened, error: TtlError, is_local: bool, level: Level, text: str
) -> None:
    opened.result = ProbeResult("s3://bucket/probe/x", {"write": error})
    (found,) = await check(is_local=is_local)
    assert (found.level, text in found.detail, bool(found.fix)) == (level, True, True), found


async def test_archive_without_credentials_needs_credentials(opened: Opened) -> None:
    error = TryLaterError("archive main: no credentials: none are set", outage="no credentials: none are set")
    opened.result = ProbeResult("s3://bucket/probe/x", {"write": error})
    (found,) = await check(is_local=True)
    assert found.level is Level.FAIL
    assert (
        found.fix
        == "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of an account that may write, and run doctor again"
    )
    (remote,) = await check(is_local=False)
    assert remote.level is Level.WARN


async def test_folder_without_its_parent_is_made(tmp_path: Path) -> None:
    (found,) = await check(is_local=True, url=f"file://{tmp_path}/no/archive")
    assert (found.level, found.fix) == (Level.FAIL, f"mkdir -p {tmp_path}/no")


@pytest.mark.parametrize(
    ("step", "keep", "level"),
    [("read", None, Level.FAIL), ("list", None, Level.FAIL), ("delete", None, Level.OK), ("delete", "90d", Level.WARN)],
)
async def test_missing_right_is_named(opened: Opened, step: str, keep: str | None, level: Level) -> None:
    opened.result = ProbeResult("s3://bucket/probe/x", {step: ForbiddenError("403")}, later(1))
    destination: dict[str, Any] = {"url": URL} | ({"keep": keep} if keep else {})
    found = (await check(**destination))[0]
    assert (found.level, step in found.detail) == (level, True), found


async def test_folder_of_the_pods_is_not_checked_from_here() -> None:
    (found,) = await check(url="file:///var/lib/ttl/archive")
    assert (found.level, "a folder of the Pods" in found.detail) == (Level.WARN, True)


async def test_native_archive_has_nothing_to_probe() -> None:
    found = (await check(native="tekton-results"))[0]
    assert (found.level, "Tekton Results" in found.detail) == (Level.OK, True)


@pytest.mark.parametrize(
    ("stored_at", "level", "word"),
    [
        (later(1), Level.OK, "agree"),
        (ago(0), Level.OK, "agree"),
        (later(10), Level.WARN, "8.0 s ahead of"),
        (later(400), Level.FAIL, "398.0 s ahead of this machine: what it stores does not count"),
        (ago(10), Level.WARN, "10.0 s behind"),
    ],
)
def test_clock_of_the_store_is_compared(stored_at: datetime, level: Level, word: str) -> None:
    found = compare_store_clock("archive main", NOW, stored_at, later(1))
    assert (found.level, word in found.detail) == (level, True), found


# The oldest object that waits

POLICY = archiving(ttl="1h")


async def oldest(cluster: FakeCluster, archive: FakeArchive) -> Finding:
    return await check_unacknowledged(cluster, Catalogue((JOB,)), POLICY, FakeArchives({"main": archive}), PLACE)


async def test_oldest_unacknowledged_object_is_found() -> None:
    cluster, archive = FakeCluster(), FakeArchive()
    stored = cluster.put(job(name="stored", uid="1", complete=ago(9_000)))
    archive.store(stored)
    cluster.put(job(name="late", uid="2", complete=ago(7_200)))
    cluster.put(job(name="later", uid="3", complete=ago(3_600)))
    cluster.put(job(name="runs", uid="4"))
    found = await oldest(cluster, archive)
    assert (found.level, "Job ci/late, finished 2h ago" in found.detail) == (Level.FAIL, True), found
    assert found.fix == "kubectl ttl explain jobs.batch/late -n ci --context=x"


async def test_object_that_has_just_finished_is_no_problem() -> None:
    cluster = FakeCluster()
    cluster.put(job(complete=ago(60)))
    found = await oldest(cluster, FakeArchive())
    assert (found.level, "finished 1m ago" in found.detail) == (Level.OK, True)


async def test_objects_that_are_stored_are_counted() -> None:
    cluster, archive = FakeCluster(), FakeArchive()
    archive.store(cluster.put(job(complete=ago(7_200))))
    found = await oldest(cluster, archive)
    assert (found.level, found.detail) == (Level.OK, "none of 1 finished objects")


async def test_archive_that_is_away_is_unknown() -> None:
    cluster = FakeCluster()
    cluster.put(job(complete=ago(7_200)))
    found = await oldest(cluster, FakeArchive(failure=TryLaterError("away")))
    assert (found.level, "cannot be checked" in found.detail) == (Level.WARN, True), found


# The probe


async def test_probe_writes_reads_lists_and_deletes(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"  # files of the same clock
    before.touch()
    result = await open_archive("main", f"file://{tmp_path}/archive").probe("one")
    after.touch()
    assert result.problems == {}
    assert result.stored_at is not None
    begun, ended = (one.stat().st_mtime for one in (before, after))
    assert floor(begun) <= result.stored_at.timestamp() <= ceil(ended)  # a time in seconds
    assert [one for one in (tmp_path / "archive").rglob("*") if one.is_file()] == []
