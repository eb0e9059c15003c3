"""`run` on a cluster where Pods really run: its controllers and kubelets end the objects, nothing is played.

Any cluster will do: KUBECONFIG names it, and E2E_IMAGE an image with a shell. Kubernetes' own TTL controller runs
there too, so TTLs are given by annotation: what is deleted here, we deleted.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import COMMAND
from tests.e2e.cluster import create, get, job, kubectl, pod, wait

pytestmark = pytest.mark.skipif(
    "E2E_IMAGE" not in os.environ, reason="no cluster with Pods: set KUBECONFIG and E2E_IMAGE"
)

NAMESPACE = "ttl-e2e"


@pytest.fixture(scope="module", autouse=True)
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log of a `run` that works through all tests."""
    kubectl("create", "namespace", NAMESPACE)
    folder = tmp_path_factory.mktemp("run")
    log = folder / "run.log"
    command = [*COMMAND, "run", "-n", NAMESPACE]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stderr=out, env={**os.environ, "XDG_STATE_HOME": str(folder)})
    wait("the start", lambda: "sweep at start" in log.read_text())
    yield log
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0, log.read_text()


def create_job(name: str, script: str, **words: str) -> None:
    create(job(name, script, namespace=NAMESPACE, **words))


def test_succeeded_job_is_deleted_with_its_pods(run: Path) -> None:
    create_job("succeeds", "sleep 1", ttl="2s")
    wait("the deletion", lambda: get("job", "succeeds", namespace=NAMESPACE) is None)

    assert "Job ttl-e2e/succeeds" in run.read_text()
    selector = "batch.kubernetes.io/job-name=succeeds"
    wait("its Pods' end", lambda: not kubectl("-n", NAMESPACE, "get", "pods", "-l", selector, "-o", "name"))


def test_ttl_of_an_outcome_applies_to_that_outcome_only() -> None:
    create_job("fails", "exit 3", ttl_failed="1s", ttl="1h")
    create_job("fails-kept", "exit 3", ttl_succeeded="1s")
    wait("the deletion", lambda: get("job", "fails", namespace=NAMESPACE) is None)
    wait("the other's end", lambda: get("job", "fails-kept", namespace=NAMESPACE)["status"].get("failed"))
    time.sleep(2)

    assert get("job", "fails-kept", namespace=NAMESPACE) is not None


def test_finished_pod_is_deleted_after_its_ttl() -> None:
    create(pod("hello", "exit 0", namespace=NAMESPACE, ttl="2s"))
    wait("the deletion", lambda: get("pod", "hello", namespace=NAMESPACE) is None)


def test_running_job_is_kept() -> None:
    create_job("runs", "sleep 600", ttl="0")
    wait("its Pod", lambda: get("job", "runs", namespace=NAMESPACE)["status"].get("active"))
    time.sleep(2)

    assert get("job", "runs", namespace=NAMESPACE) is not None
