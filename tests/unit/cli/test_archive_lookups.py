"""The lookups of `plan`: concurrent, and with the answers of the evaluator's own check."""

import asyncio

import pytest

from shared.cli.objects.preview import LOOKUPS_MAX, ArchiveLookups
from shared.core.decision.facts import Context
from shared.core.decision.namespaces import plain_namespace
from shared.errors import PermanentError, TryLaterError
from shared.evaluation.archive_check import ArchiveCheck
from tests.archives import FakeArchive, FakeArchives, archiving
from tests.builders import JOB, ago, job, not_none

pytestmark = pytest.mark.anyio
CONTEXT = Context(archiving(), plain_namespace("ci"))


async def test_page_is_asked_concurrently_and_once() -> None:
    archive, present, most = FakeArchive(), 0, 0

    async def before(_name: str) -> None:
        nonlocal present, most
        present += 1
        most = max(most, present)
        await asyncio.sleep(0)
        present -= 1

    archive.before = before
    objects = [job(name=f"j{n}", uid=f"u{n}", complete=ago(60)) for n in range(200)]
    archive.store(objects[3])
    lookups = ArchiveLookups(ArchiveCheck(FakeArchives({"main": archive})))

    await lookups.prime([(one, JOB, CONTEXT) for one in [*objects, job(uid="runs")]])

    assert 1 < most <= LOOKUPS_MAX
    assert archive.calls["find"] == 200
    facts = [not_none(await lookups.find(one, JOB, CONTEXT)) for one in objects]
    assert [n for n, fact in enumerate(facts) if fact.acknowledged_at] == [3]
    assert archive.calls["find"] == 200


async def test_failure_is_raised_for_its_object() -> None:
    archive = FakeArchive(failure=TryLaterError("away"))
    lookups = ArchiveLookups(ArchiveCheck(FakeArchives({"main": archive})))
    obj = job(complete=ago(60))
    await lookups.prime([(obj, JOB, CONTEXT)])
    with pytest.raises(PermanentError, match="away"):
        await lookups.find(obj, JOB, CONTEXT)
