"""The logs of a Pod: which containers have one, and what is said about the rest."""

from contextlib import aclosing

import pytest

from shared.devserver.apiserver.pod_logs import LOG_ANNOTATION
from shared.errors import ForbiddenError, MissingLogError, PermanentError, TryLaterError, UnreachableLogError
from shared.evaluation.pod_logs import LogGap, PodLogs, containers_of
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

RUNNING: dict[str, dict] = {"running": {}}
ENDED = {"terminated": {"exitCode": 0}}
WAITING = {"waiting": {"reason": "PodInitializing"}}


def pod(*, statuses=None, **texts):
    """A Pod with a container for each text."""
    names = [name.replace("_", "-") for name in texts]
    annotations = {LOG_ANNOTATION + name: text for name, text in zip(names, texts.values(), strict=True)}
    metadata = {"name": "p", "namespace": "ci", "uid": "u", "resourceVersion": "1", "annotations": annotations}
    status = {"phase": "Succeeded"} | (statuses or {})
    spec = {"containers": [{"name": name} for name in names]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


class BreakingCluster(FakeCluster):
    """Logs that end with an error."""

    error: Exception
    chunks: tuple[bytes, ...] = ()
    asked: tuple[str, ...] = ()

    async def logs(self, pod, container, *, bytes_max):
        self.asked += (container,)
        for chunk in self.chunks:
            yield chunk
        raise self.error


@pytest.fixture
def cluster():
    return FakeCluster()


async def read(cluster, obj, **options):
    """The logs, and their texts."""
    async with aclosing(PodLogs(cluster, **options).read(obj)) as logs:
        return [(log, b"".join([chunk async for chunk in log.chunks()])) async for log in logs]


async def test_each_container_has_its_log(cluster):
    obj = cluster.put(pod(main="one", side="two"))

    assert [(log.container, log.gap, text) for log, text in await read(cluster, obj)] == [
        ("main", None, b"one"),
        ("side", None, b"two"),
    ]


def test_containers_of_all_parts_are_named_in_the_order_of_their_starts():
    obj = pod(main="")
    obj["spec"] |= {"initContainers": [{"name": "init"}], "ephemeralContainers": [{"name": "debug"}]}

    assert list(containers_of(obj)) == ["init", "main", "debug"]


@pytest.mark.parametrize("spec", [None, {}, {"containers": None}, {"containers": [None, {}, {"name": 3}]}, []])
def test_pod_of_any_shape_has_no_containers(spec):
    assert list(containers_of({"spec": spec})) == []


async def test_log_that_wrote_nothing_is_whole_and_empty(cluster):
    ((log, text),) = await read(cluster, cluster.put(pod(main="")))

    assert (log.gap, log.is_missing, log.size, text) == (None, False, 0, b"")


@pytest.mark.parametrize(("limit", "kept", "gap"), [(3, b"012", LogGap.CUT), (10, b"0123456789", None)])
async def test_log_is_cut_at_the_limit(cluster, limit, kept, gap):
    ((log, text),) = await read(cluster, cluster.put(pod(main="0123456789")), bytes_max=limit)

    assert (text, log.size, log.gap, log.is_missing, log.may_come) == (kept, len(kept), gap, False, False)
    assert log.problem == ("the log has more than 3 bytes: the rest is left out" if gap else "")


async def test_container_that_never_started_is_reported_without_a_request():
    cluster = BreakingCluster()
    waiting = {"containerStatuses": [{"name": "main", "state": WAITING}]}

    ((log, text),) = await read(cluster, cluster.put(pod(main="x", statuses=waiting)))

    assert (log.gap, log.is_missing, text, cluster.asked) == (LogGap.NOT_STARTED, True, b"", ())


@pytest.mark.parametrize("status", [{"state": RUNNING}, {"state": ENDED}, {"state": WAITING, "lastState": ENDED}])
async def test_container_that_has_started_once_has_a_log(cluster, status):
    obj = cluster.put(pod(main="text", statuses={"containerStatuses": [{"name": "main"} | status]}))

    ((log, text),) = await read(cluster, obj)

    assert (log.gap, text) == (None, b"text")


@pytest.mark.parametrize(
    ("error", "gap", "may_come"),
    [
        (MissingLogError("gone"), LogGap.GONE, False),
        (UnreachableLogError("connection refused"), LogGap.UNREACHABLE, True),
    ],
)
async def test_missing_log_is_reported_and_the_next_one_is_read(error, gap, may_come):
    cluster = BreakingCluster()
    cluster.error = error

    found = await read(cluster, cluster.put(pod(main="", side="")))

    assert [(log.gap, log.problem, log.is_missing, log.may_come) for log, _ in found] == [
        (gap, str(error), True, may_come)
    ] * 2


async def test_log_that_breaks_off_keeps_its_beginning():
    cluster = BreakingCluster()
    cluster.error, cluster.chunks = UnreachableLogError("broke off"), (b"ab", b"cd")

    ((log, text),) = await read(cluster, cluster.put(pod(main="")))

    assert (log.gap, log.is_missing, log.may_come, text) == (LogGap.BROKEN_OFF, False, True, b"abcd")


async def test_api_server_that_is_away_is_an_error():
    cluster = BreakingCluster()
    cluster.error = TryLaterError("away")

    with pytest.raises(TryLaterError, match="away"):
        await read(cluster, cluster.put(pod(main="")))


async def test_log_that_is_not_read_is_closed_before_the_next_one(cluster):
    obj = cluster.put(pod(main="one", side="two"))

    assert [log.container async for log in PodLogs(cluster).read(obj)] == ["main", "side"]


@pytest.mark.parametrize("limit", [3, 100])
async def test_log_of_a_name_that_another_pod_has_by_then_is_discarded_after_its_last_chunk(cluster, limit):
    obj = cluster.put(pod(main="text of another"))
    cluster.write("p", "metadata.uid", "another")
    logs = PodLogs(cluster, limit).read(obj)
    log = await anext(logs)

    with pytest.raises(MissingLogError, match="replaced by the Pod another"):
        [chunk async for chunk in log.chunks()]
    await logs.aclose()

    assert (log.gap, log.is_missing, log.size, log.may_come) == (LogGap.GONE, True, 0, False)


async def test_empty_log_of_another_pod_is_missing(cluster):
    obj = cluster.put(pod(main=""))
    cluster.write("p", "metadata.uid", "another")

    ((log, text),) = await read(cluster, obj)

    assert (log.gap, log.is_missing, text) == (LogGap.GONE, True, b"")


async def test_pod_is_read_once_after_each_log_that_can_be_stored(cluster):
    states = [{"name": "main", "state": WAITING}, {"name": "side", "state": ENDED}]
    obj = cluster.put(pod(main="", side="text", statuses={"containerStatuses": states}))
    before = cluster.counted()["get"]

    await read(cluster, obj)

    assert cluster.counted()["get"] - before == 1


@pytest.mark.parametrize(("verb", "text"), [("log", ""), ("get", ""), ("get", "text")])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ForbiddenError("no right"), "no right; expected the rights to get pods and pods/log, or logs: false"),
        (PermanentError("the kubelet answered 401"), "the kubelet answered 401; expected the log, or logs: false"),
    ],
)
async def test_refusal_that_an_operator_can_end_is_an_error_and_no_gap(cluster, verb, text, error, expected):
    obj = cluster.put(pod(main=text))
    cluster.fail(verb, error)

    with pytest.raises(type(error), match=expected):
        await read(cluster, obj)


async def test_api_server_that_is_away_after_a_log_is_an_error(cluster):
    obj = cluster.put(pod(main="text"))
    cluster.fail("get", TryLaterError("away"))

    with pytest.raises(TryLaterError, match="away"):
        await read(cluster, obj)
