"""The logs of a Pod in an archive: what a later attempt replaces, and what it keeps."""

import pytest

from shared.core.archive.layout import log_path
from shared.devserver.apiserver.pod_logs import LOG_ANNOTATION
from shared.errors import DamagedDocumentError, ForbiddenError, MissingLogError, TryLaterError, UnreachableLogError
from shared.evaluation.pod_logs import PodLogs
from shared.usecases.archives.byte_gate import ByteGate
from shared.usecases.archives.logs import write_logs
from tests.archives import FakeArchive, copied_of
from tests.builders import POD, ended, having, pod
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

ANNOTATION = f"{LOG_ANNOTATION}main"
LIMIT = 100


class Bench:
    """One Pod with one container, and an archive."""

    def __init__(self, text="0123456789"):
        self.cluster, self.archive = FakeCluster(), FakeArchive()
        self.pod = self.cluster.put(having(pod(containers=(ended(),)), "metadata.annotations", {ANNOTATION: text}))
        self.key = copied_of(self.pod, POD).key
        self.path = log_path(self.key, "main")

    def becomes(self, text):
        """The log has another text; the Pod that is archived is the one that was read before."""
        self.cluster.put(having(self.pod, "metadata.annotations", {ANNOTATION: text}))

    async def write(self, *, may_be_missing=False):
        logs = PodLogs(self.cluster, LIMIT)
        return await write_logs(
            self.archive, logs, self.pod, self.key, may_be_missing=may_be_missing, gate=ByteGate(2**30)
        )


async def test_log_is_stored():
    bench = Bench()

    stored = await bench.write()

    assert (stored.paths, stored.problems) == ([bench.path], {})
    assert bench.archive.logs == {bench.path: b"0123456789"}


@pytest.mark.parametrize("text", ["", "0123", "another"])
async def test_shorter_log_does_not_replace_the_one_that_is_stored(text):
    bench = Bench()
    await bench.write()
    bench.becomes(text)

    stored = await bench.write()

    assert bench.archive.logs == {bench.path: b"0123456789"}
    assert stored.paths == [bench.path]
    (problem,) = stored.problems.values()
    assert problem == f"kept: an attempt before has stored 10 bytes; now the log has {len(text)} bytes"


async def test_longer_log_replaces_the_one_that_is_stored():
    bench = Bench()
    await bench.write()
    bench.becomes("0123456789 and more")

    stored = await bench.write()

    assert bench.archive.logs == {bench.path: b"0123456789 and more"}
    assert (stored.paths, stored.problems) == ([bench.path], {})


async def test_same_log_is_not_stored_again_and_lacks_what_it_lacked():
    bench = Bench("x" * (LIMIT + 1))
    first = await bench.write()
    second = await bench.write()

    assert first == second
    (problem,) = second.problems.values()
    assert problem.startswith("cut: ")


async def test_damaged_log_is_replaced():
    bench = Bench()
    bench.archive.logs[bench.path] = b"much longer than the log of the container"
    bench.archive.failures["read_log"] = DamagedDocumentError("cut off")

    await bench.write()

    assert bench.archive.logs == {bench.path: b"0123456789"}


@pytest.mark.parametrize("error", [MissingLogError("gone"), UnreachableLogError("node is gone")])
async def test_log_that_is_missing_later_is_kept(error):
    bench = Bench()
    await bench.write()
    bench.cluster.fail("log", error)

    stored = await bench.write(may_be_missing=True)

    assert (stored.paths, bench.archive.logs) == ([bench.path], {bench.path: b"0123456789"})
    (problem,) = stored.problems.values()
    assert problem.startswith("kept: an attempt before has stored 10 bytes; now ")
    assert str(error) in problem


@pytest.mark.parametrize("is_stored", [False, True])
async def test_missing_right_is_an_error_also_at_the_last_attempt(is_stored):
    """An operator can grant it, so the object waits. What an attempt before has stored may be shorter than the log."""
    bench = Bench()
    if is_stored:
        await bench.write()
    bench.cluster.fail("log", ForbiddenError("pods/log is forbidden"))

    with pytest.raises(ForbiddenError, match="pods/log is forbidden"):
        await bench.write(may_be_missing=True)


async def test_archive_that_is_away_is_an_error():
    bench = Bench()
    bench.archive.failures["read_log"] = TryLaterError("away")

    with pytest.raises(TryLaterError, match="away"):
        await bench.write()


@pytest.mark.parametrize("text", ["", "text of another Pod", "a longer text of another Pod"])
@pytest.mark.parametrize("is_stored", [False, True])
async def test_log_of_another_pod_of_the_same_name_is_never_stored(text, is_stored):
    bench = Bench()
    if is_stored:
        await bench.write()
    bench.becomes(text)
    bench.cluster.write(bench.pod["metadata"]["name"], "metadata.uid", "another")

    stored = await bench.write()

    assert bench.archive.logs == ({bench.path: b"0123456789"} if is_stored else {})
    assert stored.paths == ([bench.path] if is_stored else [])
    (problem,) = stored.problems.values()
    assert problem.startswith("kept: " if is_stored else "gone: ")
    assert "was replaced by the Pod another" in problem


async def test_pod_that_is_replaced_while_its_log_is_stored_is_noticed_before_the_log_is_published():
    bench = Bench()
    bench.cluster.before_get = bench.cluster.remove

    stored = await bench.write()

    assert (stored.paths, bench.archive.logs) == ([], {})
    (problem,) = stored.problems.values()
    assert problem.endswith("was deleted while its log was read")
