"""`run` with its timers on a real NATS that is full or gone: sweeps stay short, and the end is in order."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.integration.conftest import Api, Run
from tests.integration.test_timers import stamp
from tests.nats_servers import NatsServer, fill_store, small_nats_server
from tests.servers import shared_server  # noqa: F401 - a fixture

INTERVAL_SECONDS = 30.0
LATENESS_MAX = 1.5 * INTERVAL_SECONDS
"""One interval, and some seconds for a busy machine; it was three and a half intervals while each sweep waited."""

PODS = 25
STOP_SECONDS_MAX = 15.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NatsServer]:
    with small_nats_server(tmp_path / "nats") as server:
        yield server


def fill(node: NatsServer) -> None:
    asyncio.run(fill_store(node))


def finish(api: Api, namespace: str, name: str, ttl: str) -> None:
    """Create a Pod that has finished."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/work:1"}]}
    api.call("POST", pods, {"metadata": {"name": name, "annotations": {"ttlafterfinished.dev/ttl": ttl}}, "spec": spec})
    ended = {"exitCode": 0, "startedAt": stamp(datetime.now(UTC)), "finishedAt": stamp(datetime.now(UTC))}
    container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Succeeded", "containerStatuses": [{**container, "state": {"terminated": ended}}]}
    api.call("PATCH", f"{pods}/{name}/status", {"status": status})


def lateness_of(run: Run, prefix: str) -> list[float]:
    """How late objects were deleted, in seconds."""
    return [float(one) for one in re.findall(rf'/{prefix}-\d+" .*lateness_seconds=(\S+)', run.text)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [(fill, "no storage left"), (NatsServer.kill, "no NATS server is reachable")],
    ids=("full", "killed"),
)
def test_sweep_does_not_wait_for_nats_and_run_ends_in_order(
    api: Api,
    namespace: str,
    node: NatsServer,
    start_run: Callable[..., Run],
    fault: Callable[[NatsServer], None],
    reason: str,
) -> None:
    run = start_run("--kinds", "pods", "-v", "--sweep-interval", f"{INTERVAL_SECONDS:g}s", "--timers", node.url)
    finish(api, namespace, "first", "5s")
    api.wait("the start", lambda: "stream created" in run.text and "deleted" in run.text)
    fault(node)

    for number in range(PODS):
        finish(api, namespace, f"soon-{number}", "5s")
        finish(api, namespace, f"later-{number}", "35s")  # the sweeps want a timer for it
        time.sleep(1)
    api.wait("the deletions", lambda: len(lateness_of(run, "soon")) == PODS)
    assert max(lateness_of(run, "soon")) < LATENESS_MAX
    said = "sweep could not set timers"  # at the end of the sweep, which deletes first
    lines = api.wait(said, lambda: [line for line in run.text.splitlines() if said in line])
    assert all(reason in line for line in lines), lines

    for number in range(3):
        finish(api, namespace, f"last-{number}", "58s")  # within two intervals, and not due until the end
    for line in ("swept ", "sweep could not set timers"):  # of a sweep that begins now
        before = run.text.count(line)
        api.wait(line, lambda line=line, before=before: run.text.count(line) > before)
    stopping = time.monotonic()
    assert run.stop() == 0
    assert time.monotonic() - stopping < STOP_SECONDS_MAX
    assert "Traceback" not in run.text
    (line,) = [line for line in run.text.splitlines() if "timers are not certain to be stored" in line]
    assert "the next sweep sets them" in line
