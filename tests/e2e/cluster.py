"""A given cluster, through kubectl: its own controllers and kubelets finish the objects."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHELL = os.environ.get("E2E_IMAGE", "busybox:1.37")
"""An image with a shell, and with curl or wget."""

DOMAIN = "ttlafterfinished.dev"


def kubectl(*arguments: str, given: str = "") -> str:
    """What kubectl prints.

    Raises:
        AssertionError: It failed; with what it said.
    """
    done = subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def get(kind: str, name: str, *, namespace: str) -> Any:
    """The object, or None."""
    out = kubectl("-n", namespace, "get", kind, name, "--ignore-not-found", "-o", "json")
    return json.loads(out) if out else None


def create(obj: dict[str, Any]) -> dict[str, Any]:
    """Create an object; returns it as the API server has it."""
    made: dict[str, Any] = json.loads(kubectl("create", "-o", "json", "-f", "-", given=json.dumps(obj)))
    return made


def wait(what: str, true: Callable[..., Any], seconds: float = 60) -> Any:
    """Wait until it is so; returns what was so.

    Raises:
        AssertionError: It did not come to be so.
    """
    deadline = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.2)
    return value


def annotations(**words: str) -> dict[str, str]:
    """`ttl_failed="1s"` as the annotation ttlafterfinished.dev/ttl-failed."""
    return {f"{DOMAIN}/{name.replace('_', '-')}": value for name, value in words.items()}


def pod_spec(script: str) -> dict[str, Any]:
    """A Pod that runs a shell script once."""
    return {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": SHELL, "command": ["sh", "-c", script]}],
    }


def job(name: str, script: str, *, namespace: str, **words: str) -> dict[str, Any]:
    """A Job that runs a shell script, with our annotations."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations(**words)},
        "spec": {"backoffLimit": 0, "template": {"spec": pod_spec(script)}},
    }


def pod(name: str, script: str, *, namespace: str, **words: str) -> dict[str, Any]:
    """A Pod that runs a shell script, with our annotations."""
    metadata = {"name": name, "namespace": namespace, "annotations": annotations(**words)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(script)}


def server_pid() -> int | None:
    """The process of an API server of this machine, whose id lies beside the kubeconfig; None where it is elsewhere."""
    file = Path(os.environ["KUBECONFIG"]).parent / "kube-apiserver.pid"
    return int(file.read_text()) if file.is_file() else None
