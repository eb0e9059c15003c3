"""The project on a cluster, as knative/README.md has it installed."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster import kubectl, server_pid, wait

ROOT = Path(__file__).parents[2]
NAMESPACE = "ttl-after-finished"
IMAGE = "ghcr.io/ttl-after-finished/ttl-after-finished"
FUNCTIONS = ("schedule", "timers", "expire", "sweep")

# A part of Knative Serving's own installation, for clusters that have its CRDs and play the rest.
_PODSPECABLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "knative-serving-podspecable-binding", "labels": {"duck.knative.dev/podspecable": "true"}},
    "rules": [
        {
            "apiGroups": ["serving.knative.dev"],
            "resources": ["configurations", "services"],
            "verbs": ["list", "watch", "patch"],
        }
    ],
}


def prepare() -> None:
    """What Knative Serving brings, where only its CRDs are."""
    if not kubectl("get", "clusterrole", _PODSPECABLE["metadata"]["name"], "--ignore-not-found"):  # type: ignore[index]
        kubectl("apply", "-f", "-", given=json.dumps(_PODSPECABLE))


def two_minute_start() -> None:
    """The commands of knative/README.md's two-minute start, as they stand there.

    E2E_FUNCTIONS_IMAGE names another image than the released one; nothing else is changed.
    """
    text = (ROOT / "knative" / "README.md").read_text()
    block = re.search(r"## Two minutes\n\n((?:    .+\n)+)", text)
    assert block, "knative/README.md has no two-minute start"
    commands = block[1].replace("\\\n", " ").strip().splitlines()
    assert len(commands) == 2
    apply(ROOT / commands[0].split()[-1]) if "E2E_FUNCTIONS_IMAGE" in os.environ else run(commands[0])
    run(commands[1])


def run(command: str) -> None:
    """A command as a user gives it, in the checkout."""
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


def apply(folder: Path, *, without: str = "") -> None:
    """Apply an overlay.

    Args:
        folder: The overlay's.
        without: An API group whose objects are left out.
    """
    kubectl("apply", "-f", "-", given=built(folder, without=without))


def built(folder: Path, *, without: str = "") -> str:
    """What kustomize makes of an overlay, with the image that E2E_FUNCTIONS_IMAGE names."""
    objects = yaml.safe_load_all(kubectl("kustomize", str(folder)))
    kept = [obj for obj in objects if not without or obj["apiVersion"].partition("/")[0] != without]
    text = yaml.safe_dump_all(kept)
    image = os.environ.get("E2E_FUNCTIONS_IMAGE")
    return re.sub(rf"image: {IMAGE}:\S+", f"image: {image}", text) if image else text


def overlay(folder: Path, *, components: list[str], settings: dict[str, str]) -> Path:
    """A user's own overlay upon the two-minute start.

    Args:
        folder: Where to make it, with a copy of the manifests: kustomize takes relative paths only.
        components: Of `knative/components`.
        settings: In place of the two-minute start's.
    """
    shutil.copytree(ROOT / "knative", folder / "knative")
    mine = folder / "knative" / "overlays" / "mine"
    mine.mkdir()
    literals = [f"{name}={value}" for name, value in settings.items()]
    generator = {"name": "settings", "namespace": NAMESPACE, "behavior": "merge", "literals": literals}
    kustomization = {
        "resources": ["../knative"],
        "components": [f"../../components/{name}" for name in (*components, "release")],
        "configMapGenerator": [generator],
    }
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return mine


def durable_folder() -> dict[str, str]:
    """Settings for a cluster of processes of this machine, whose claims go with their Pods: a file of the machine's."""
    if server_pid() is None:
        return {}
    return {"TTL_TIMERS_PATH": str(Path(os.environ["KUBECONFIG"]).parent / "e2e-timers.db")}


def wait_until_ready() -> None:
    """After a change: all of it, in its newest revision."""
    kinds = "services.serving.knative.dev,triggers,apiserversources,containersources,pingsources,sinkbindings"
    kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", "--timeout=2m", kinds, "--all")
    for name in kubectl("-n", NAMESPACE, "get", "deployments,statefulsets", "-o", "name").split():
        kubectl("-n", NAMESPACE, "rollout", "status", name, "--timeout=2m")


def pods_of(function: str) -> dict[str, str]:
    """The names, by uid, of a function's Pods that are not on their way out."""
    listed = json.loads(kubectl("-n", NAMESPACE, "get", "pods", "-o", "json"))["items"]
    alive = [pod["metadata"] for pod in listed if "deletionTimestamp" not in pod["metadata"]]
    return {one["uid"]: one["name"] for one in alive if one["name"].startswith(f"{function}-")}


def kill(function: str) -> None:
    """End a function's Pods without grace, and wait for others in their place."""
    before = pods_of(function)
    assert before, f"no Pod of {function}"
    kubectl("-n", NAMESPACE, "delete", "pod", *before.values(), "--grace-period=0", "--force", "--wait=false")
    wait(f"another Pod of {function}", lambda: pods_of(function).keys() - before.keys())


def events(reason: str) -> list[dict[str, Any]]:
    """What the installation said of itself."""
    selector = f"--field-selector=reason={reason}"
    found: list[dict[str, Any]] = json.loads(kubectl("-n", NAMESPACE, "get", "events", selector, "-o", "json"))["items"]
    return found


def broker_url() -> str:
    """Where the Broker takes events, inside the cluster."""
    return kubectl("-n", NAMESPACE, "get", "broker", "default", "-o", "jsonpath={.status.address.url}")


def broker_audience() -> str:
    """Whom a token for the Broker must be meant for."""
    return kubectl("-n", NAMESPACE, "get", "broker", "default", "-o", "jsonpath={.status.address.audience}")
