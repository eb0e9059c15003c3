"""`run` on a cluster where Pods really run: its controllers and kubelets end the objects, nothing is played.

Any cluster will do: KUBECONFIG names it, and E2E_IMAGE an image with a shell. Kubernetes' own TTL controller runs
there too, so TTLs are given by annotation: what is deleted here, we deleted.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    "E2E_IMAGE" not in os.environ, reason="no cluster with Pods: set KUBECONFIG and E2E_IMAGE"
)

NAMESPACE = "ttl-e2e"


def kubectl(*arguments: str, given: str = "") -> str:
    done = subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def get(kind: str, name: str) -> Any:
    out = kubectl("-n", NAMESPACE, "get", kind, name, "--ignore-not-found", "-o", "json")
    return json.loads(out) if out else None


def wait(what: str, true: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.1)
    return value


@pytest.fixture(scope="module", autouse=True)
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log of a `run` that works through all tests."""
    kubectl("create", "namespace", NAMESPACE)
    folder = tmp_path_factory.mktemp("run")
    log = folder / "run.log"
    command = [sys.executable, "-c", "from shared.cli.main import main; main()", "run", "-n", NAMESPACE]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stderr=out, env={**os.environ, "XDG_STATE_HOME": str(folder)})
    wait("the start", lambda: "sweep at start" in log.read_text())
    yield log
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0, log.read_text()


def create_job(name: str, script: str, **annotations: str) -> None:
    ours = {f"ttlafterfinished.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {"name": "main", "image": os.environ["E2E_IMAGE"], "command": ["sh", "-c", script]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": ours},
        "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    kubectl("-n", NAMESPACE, "create", "-f", "-", given=json.dumps(job))


def test_a_job_that_really_succeeded_is_deleted_with_its_pods(run: Path) -> None:
    create_job("succeeds", "sleep 1", ttl="2s")
    wait("the deletion", lambda: get("job", "succeeds") is None)

    assert "Job ttl-e2e/succeeds" in run.read_text()
    selector = "batch.kubernetes.io/job-name=succeeds"
    wait("its Pods' end", lambda: not kubectl("-n", NAMESPACE, "get", "pods", "-l", selector, "-o", "name"))


def test_outcomes_have_ttls_of_their_own() -> None:
    create_job("fails", "exit 3", ttl_failed="1s", ttl="1h")
    create_job("fails-kept", "exit 3", ttl_succeeded="1s")
    wait("the deletion", lambda: get("job", "fails") is None)
    wait("the other's end", lambda: get("job", "fails-kept")["status"].get("failed"))
    time.sleep(2)

    assert get("job", "fails-kept") is not None


def test_a_pod_that_really_ended_is_deleted() -> None:
    overrides = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "hello", "annotations": {"ttlafterfinished.dev/ttl": "2s"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": os.environ["E2E_IMAGE"], "command": ["sh", "-c", "exit 0"]}],
        },
    }
    kubectl("-n", NAMESPACE, "create", "-f", "-", given=json.dumps(overrides))
    wait("the deletion", lambda: get("pod", "hello") is None)


def test_a_running_job_stays() -> None:
    create_job("runs", "sleep 600", ttl="0")
    wait("its Pod", lambda: get("job", "runs")["status"].get("active"))
    time.sleep(2)

    assert get("job", "runs") is not None
