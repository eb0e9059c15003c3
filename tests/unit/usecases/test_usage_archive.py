"""`usage` stores a due object that a policy rule has archived, reads it back, and deletes only what was stored."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from shared.adapters.config.policy_file import parse_policy
from shared.core.policy.usage import CONFIG_MAPS
from shared.errors import ForbiddenError, PermanentError, TryLaterError
from shared.evaluation.archive_check import ArchiveCheck
from shared.evaluation.children import Children
from shared.evaluation.pod_logs import PodLogs
from shared.usecases.archives.writer import ArchiveWriter
from shared.usecases.usage.handler import UsageArchive
from shared.usecases.usage.tick import Usage
from tests.archives import FakeArchive, FakeArchives
from tests.builders import shipped_kinds
from tests.unit.usecases.test_usage import HOUR, Bench, announced, due
from tests.usage import LONG_UNUSED, archived_policy, config_map, secret, unused_policy

pytestmark = pytest.mark.anyio

DATA = {"data": {"key": "value"}}


class ArchiveBench(Bench):
    """A tick over fakes, with an archive; it counts the reads of whole objects."""

    def __init__(self, **options):
        super().__init__(**options)
        self.policy = archived_policy()
        self.archive = FakeArchive(now=self.clock.now)
        self.read: list[tuple[str, str]] = []
        archives = FakeArchives({"main": self.archive})
        writer = ArchiveWriter(archives, cast("Children", None), cast("PodLogs", None))
        read_whole = self.cluster.get_with_data

        async def reading(kind, namespace, name):
            self.read.append((str(kind), name))
            return await read_whole(kind, namespace, name)

        cast("Any", self.cluster).get_with_data = reading
        archive = UsageArchive(self.cluster, writer, ArchiveCheck(archives), self.telemetry)
        self.use(replace(self.handler, archive=archive))

    def use(self, handler):
        self.handler = handler
        self.usage = Usage(handler, self.usage.reader, self.publisher, concurrency=4)

    @property
    def deleted(self):
        return [one["metadata"]["name"] for one in self.cluster.deleted]


@pytest.fixture
def bench():
    return ArchiveBench()


async def test_due_object_is_stored_with_its_data_read_back_and_deleted(bench):
    bench.put(due() | DATA)
    stored = bench.cluster._find("web-7f9c2")[1]

    await bench.tick()

    assert bench.deleted == ["web-7f9c2"]
    assert bench.archive.holds(stored, CONFIG_MAPS)
    assert bench.archive.objects()[0]["data"] == DATA["data"]
    assert bench.archive.calls["read"] >= 1
    assert bench.reader.looks == ["", "ci"]
    assert [one.archive for one in bench.telemetry.archives] == ["main"]


async def test_object_is_read_whole_only_if_it_is_due_and_a_rule_has_it_archived(bench):
    bench.put(due() | DATA, config_map("new") | DATA, config_map("marked", marked=LONG_UNUSED) | DATA)
    await bench.tick()
    assert bench.read == [("ConfigMap", "web-7f9c2")]


async def test_object_of_a_rule_without_an_archive_is_never_read_whole(bench):
    bench.policy = unused_policy()
    bench.put(due() | DATA)
    await bench.tick()
    assert (bench.read, bench.deleted) == ([], ["web-7f9c2"])


async def test_document_that_is_stored_already_is_only_read_back(bench):
    bench.put(due() | DATA)
    bench.archive.store(bench.cluster._find("web-7f9c2")[1], CONFIG_MAPS)
    await bench.tick()
    assert bench.archive.calls["put"] == 0
    assert bench.deleted == ["web-7f9c2"]


async def test_damaged_document_is_replaced_before_the_deletion(bench):
    bench.put(due() | DATA)
    stored = bench.cluster._find("web-7f9c2")[1]
    bench.archive.store(stored, CONFIG_MAPS)
    ((path, (_, at)),) = bench.archive.documents.items()
    bench.archive.documents[path] = b"damaged", at

    await bench.tick()

    assert bench.archive.holds(stored, CONFIG_MAPS)
    assert bench.deleted == ["web-7f9c2"]


@pytest.mark.parametrize("call", ["put", "find", "read"])
@pytest.mark.parametrize("error", [TryLaterError("away"), PermanentError("full"), ForbiddenError("no right")])
async def test_archive_that_fails_keeps_the_object_and_says_so(bench, call, error):
    bench.put(due() | DATA)
    bench.archive.failures[call] = error

    await bench.tick()

    assert bench.deleted == []
    assert ("kept", "not-archived") in bench.telemetry.verdicts()
    refused = [one.reason for one in bench.telemetry.refusals]
    assert "NotArchived" in [event[1] for event in bench.telemetry.events] + refused


async def test_document_that_is_lost_after_the_put_keeps_the_object(bench):
    bench.put(due() | DATA)

    async def lose(call):
        if call == "find":
            bench.archive.documents.clear()

    bench.archive.before = lose
    await bench.tick()
    assert bench.archive.calls["put"] == 1
    assert bench.deleted == []


async def test_object_that_changed_after_the_list_is_not_stored(bench):
    bench.put(due() | DATA)

    whole = bench.cluster.get_with_data

    async def changed(*words):
        bench.cluster.write("web-7f9c2")
        return await whole(*words)

    bench.cluster.get_with_data = changed
    await bench.tick()
    assert (bench.deleted, bench.archive.calls["put"]) == ([], 0)
    assert ("kept", "try-later") in bench.telemetry.verdicts()


async def test_object_that_changes_after_it_was_stored_is_kept(bench):
    bench.put(due() | DATA)

    async def change(namespace):
        if namespace:
            bench.cluster.write("web-7f9c2")

    bench.reader.on_look = change
    await bench.tick()
    assert (bench.deleted, bench.archive.calls["put"]) == ([], 1)


async def test_grace_counts_from_the_acknowledgement_of_the_same_version(bench):
    bench.policy = archived_policy(grace="2h")
    bench.put(due() | DATA)

    await bench.tick()
    assert (bench.deleted, bench.archive.calls["put"]) == ([], 1)
    await bench.tick(HOUR)
    assert bench.deleted == []
    await bench.tick(2 * HOUR)

    assert (bench.deleted, bench.archive.calls["put"]) == (["web-7f9c2"], 1)


async def test_policy_that_wants_an_archive_during_the_second_pass_has_the_object_stored_first(bench):
    bench.policy = unused_policy()
    bench.put(due() | DATA)

    async def change(namespace):
        if namespace:
            bench.policy = archived_policy()

    bench.reader.on_look = change
    await bench.tick()
    assert bench.archive.calls["put"] == 1
    assert bench.deleted == ["web-7f9c2"]
    assert bench.reader.looks == ["", "ci", "ci"]


async def test_process_without_archives_keeps_the_object(bench):
    bench.use(replace(bench.handler, archive=None))
    bench.put(due() | DATA)
    await bench.tick()
    assert bench.deleted == []


@pytest.mark.parametrize("secrets", [True, False])
async def test_secret_is_stored_only_in_an_archive_with_secrets(bench, secrets):
    rule = {"name": "rotated", "match": {"kinds": ["secrets"]}, "unused": {"ttl": "1d"}, "archive": {"to": "main"}}
    archives = {"main": {"url": "file:///archive", "secrets": True}}
    policy = parse_policy(json.dumps({"archives": archives, "rules": [rule]}), shipped_kinds(), name="policy.yaml")
    main = policy.archives["main"].model_copy(update={"secrets": secrets})
    bench.policy = policy.model_copy(update={"archives": {"main": main}})
    bench.put(announced(secret("token", marked=LONG_UNUSED)) | DATA)

    await bench.tick()

    assert bench.deleted == (["token"] if secrets else [])
    assert bench.read == ([("Secret", "token")] if secrets else [])
    assert [one["data"] for one in bench.archive.objects()] == ([DATA["data"]] if secrets else [])


async def test_audit_and_dry_run_store_nothing():
    bench = ArchiveBench(dry_run=True)
    bench.put(due() | DATA)
    await bench.tick(timedelta(0))
    assert (bench.read, bench.deleted, bench.archive.calls["put"]) == ([], [], 0)
