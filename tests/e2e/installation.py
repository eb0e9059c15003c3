"""The project on a cluster, as knative/README.md has it installed."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.builders import COMMAND
from tests.e2e.cluster import create, get, kubectl, server_pid, wait

ROOT = Path(__file__).parents[2]
NAMESPACE = "ttl-after-finished"
READY_SECONDS = 120
KNATIVE = "knative-eventing"
MONITORING = "monitoring.coreos.com"
IMAGE = "ghcr.io/ttl-after-finished/ttl-after-finished"
FUNCTIONS = ("schedule", "timers", "expire", "enforce", "archive", "sweep")

ALWAYS_RUNNING = ("timers",)
"""Never scaled to zero: it holds the timers."""

MIN_SCALE = "autoscaling.knative.dev/min-scale"

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


_RIGHTS = {"Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}

DATA_PLANE = ("imc-dispatcher", "mt-broker-filter", "mt-broker-ingress")
"""The Deployments of Knative Eventing through which each event goes."""

PING_ADAPTER = "pingsource-mt-adapter"
"""The Deployment of Knative Eventing that sends the ticks of all PingSources."""


def prepare() -> None:
    """Restart Knative Eventing, for an installation that requires no tokens."""
    restart_knative()
    complete_serving()


def complete_serving() -> None:
    """Bring what Knative Serving brings, where only its CRDs are."""
    if not kubectl("get", "clusterrole", _PODSPECABLE["metadata"]["name"], "--ignore-not-found"):  # type: ignore[index]
        kubectl("apply", "-f", "-", given=json.dumps(_PODSPECABLE))


def has_serving() -> bool:
    """Whether Knative Serving itself runs, and not only its CRDs are there."""
    return bool(kubectl("get", "namespace", "knative-serving", "--ignore-not-found"))


def restart_knative() -> None:
    """Restart all processes of Knative Eventing, which keep connections and settings of the installation before.

    If `authentication-oidc` changes while they run, they may never agree: the dispatcher then sends events without the
    token that the filter requires.
    """
    restart(*kubectl("-n", KNATIVE, "get", "deployments", "-o", "name").split())


@contextmanager
def tokens() -> Iterator[None]:
    """Have Knative Eventing send and require tokens, as docs/explanation/callers.md switches them on."""
    _authenticate("enabled")
    try:
        restart_knative()
        complete_serving()
        wait("the feature", _are_policies_taken, READY_SECONDS)
        yield
    finally:
        _authenticate("disabled")


def _authenticate(state: str) -> None:
    feature = json.dumps({"data": {"authentication-oidc": state}})
    kubectl("-n", KNATIVE, "patch", "configmap", "config-features", "--type=merge", "-p", feature)


def _are_policies_taken() -> bool:
    """Knative's webhook reads the feature a moment later."""
    policy = {"apiVersion": "eventing.knative.dev/v1alpha1", "kind": "EventPolicy", "metadata": {"name": "probe"}}
    try:
        kubectl("create", "--dry-run=server", "-f", "-", given=json.dumps({**policy, "spec": {}}))
    except AssertionError:
        return False
    return True


def restart(*deployments: str) -> None:
    """Restart Deployments of Knative Eventing, wait for their new Pods, and for the end of the others.

    The API server calls a webhook on a connection to its old Pod until that ends, and a call in that moment fails.
    """
    kubectl("-n", KNATIVE, "rollout", "restart", *deployments)
    for deployment in deployments:
        kubectl("-n", KNATIVE, "rollout", "status", deployment, "--timeout=2m")
    wait("the end of the old Pods of Knative Eventing", lambda: not ending_pods(KNATIVE), READY_SECONDS)


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


def apply(folder: Path) -> None:
    """Apply an overlay."""
    kubectl("apply", "-f", "-", given=built(folder))


def apply_rights(folder: Path) -> None:
    """Apply the namespace, the accounts and the roles of an overlay, and wait until the roles hold their rules.

    The control plane fills an aggregated role a moment after it is applied, and until then its account is refused.
    """
    objects = [obj for obj in yaml.safe_load_all(built(folder)) if obj["kind"] in _RIGHTS]
    kubectl("apply", "-f", "-", given=yaml.safe_dump_all(objects))
    wait("the rules of the aggregated roles", _are_roles_filled, READY_SECONDS)


def _are_roles_filled() -> bool:
    label = f"app.kubernetes.io/part-of={NAMESPACE}"
    roles = json.loads(kubectl("get", "clusterroles", "-l", label, "-o", "json"))["items"]
    for role in roles:
        for selector in role.get("aggregationRule", {}).get("clusterRoleSelectors", []):
            parts = [one for one in roles if selector["matchLabels"].items() <= one["metadata"]["labels"].items()]
            if any(rule not in (role["rules"] or []) for part in parts for rule in part["rules"]):
                return False
    return True


def uninstall(folder: Path) -> None:
    """Delete what an overlay holds, and wait until its namespace is gone, which is the last to go.

    To wait for each object, kubectl reads five of them a second, and there are a hundred. The functions end first: with
    Pods in it, the namespace would stay for up to five minutes, see knative/README.md.
    """
    functions = ("services.serving.knative.dev", "--all", "--cascade=foreground", "--timeout=180s")
    kubectl("-n", NAMESPACE, "delete", *functions)
    kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", given=built(folder))
    kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=180s")


def remains() -> list[str]:
    """The objects of all kinds that belong to an installation, by their namespace or label, but Events."""
    kinds = set(kubectl("api-resources", "--verbs=list,delete", "-o", "name").split()) - {
        "events",
        "events.events.k8s.io",
    }
    listed = json.loads(kubectl("get", ",".join(sorted(kinds)), "-A", "-o", "json"))["items"]
    return [f"{one['kind']} {one['metadata']['name']}" for one in listed if _is_ours(one["metadata"])]


def _is_ours(metadata: Mapping[str, Any]) -> bool:
    label = metadata.get("labels", {}).get("app.kubernetes.io/part-of")
    return NAMESPACE in {metadata.get("namespace"), label}


def built(folder: Path) -> str:
    """What kustomize makes of an overlay, with the image that E2E_FUNCTIONS_IMAGE names.

    The monitors for Prometheus are left out where their CRDs are not.
    """
    left_out = "" if MONITORING in kubectl("api-versions") else MONITORING
    objects = yaml.safe_load_all(kubectl("kustomize", str(folder)))
    text = yaml.safe_dump_all(obj for obj in objects if obj["apiVersion"].partition("/")[0] != left_out)
    image = os.environ.get("E2E_FUNCTIONS_IMAGE")
    return re.sub(rf"image: {IMAGE}:\S+", f"image: {image}", text) if image else text


def overlay(
    folder: Path,
    *,
    components: list[str],
    settings: dict[str, str],
    files: Mapping[str, Sequence[Path]] | None = None,
    on: str = "knative",
) -> Path:
    """Write a user's overlay on a shipped one: on the two-minute start, unless another is named.

    Args:
        folder: Where to make it, with a copy of the manifests: kustomize takes relative paths only.
        components: Of `knative/components`.
        settings: In place of those of the shipped overlay.
        files: ConfigMaps that components want, by name.
        on: The shipped overlay.
    """
    shutil.copytree(ROOT / "knative", folder / "knative")
    mine = folder / "knative" / "overlays" / "mine"
    mine.mkdir()
    literals = [f"{name}={value}" for name, value in settings.items()]
    generators: list[dict[str, Any]] = [{"name": "settings", "behavior": "merge", "literals": literals}]
    for name, paths in (files or {}).items():
        generators.append({"name": name, "files": [path.name for path in paths]})
        for path in paths:
            shutil.copy(path, mine)
    kustomization = {
        "resources": [f"../{on}"],
        "components": [f"../../components/{name}" for name in (*components, "release")],
        "configMapGenerator": [{"namespace": NAMESPACE, **generator} for generator in generators],
    }
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return mine


def durable_folder() -> dict[str, str]:
    """Settings for a cluster of processes of this machine, whose claims go with their Pods: a file of the machine's."""
    if server_pid() is None:
        return {}
    return {"TTL_TIMERS": f"sqlite:{Path(os.environ['KUBECONFIG']).parent}/e2e-timers.db"}


def shared_folder(name: str) -> Path | None:
    """A folder that all Pods share, if they are processes of this machine; None for another cluster."""
    return None if server_pid() is None else Path(os.environ["KUBECONFIG"]).parent / name


def wait_until_ready() -> None:
    """After a change: all of it, in its newest revision."""
    _wait_for(
        "brokers.eventing.knative.dev,services.serving.knative.dev,triggers,apiserversources,pingsources,"
        "containersources,sinkbindings"
    )
    wait("the Broker's address in all that send to it", _are_senders_bound, READY_SECONDS)
    for name in kubectl("-n", NAMESPACE, "get", "deployments,statefulsets", "-o", "name").split():
        kubectl("-n", NAMESPACE, "rollout", "status", name, "--timeout=2m")


def _wait_for(kinds: str) -> None:
    kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", f"--timeout={READY_SECONDS}s", kinds, "--all")


def _are_senders_bound() -> bool:
    """Whether each subject of a SinkBinding knows the Broker, and has its token.

    A SinkBinding is Ready before the token is in its subject, which then gets new Pods.
    """
    bindings = json.loads(kubectl("-n", NAMESPACE, "get", "sinkbindings", "-o", "json"))["items"]
    return all(_is_bound(binding) for binding in bindings)


def _is_bound(binding: dict[str, Any]) -> bool:
    subject, token = binding["spec"]["subject"], binding.get("status", {}).get("oidcTokenSecretName")
    group, _, version = subject["apiVersion"].rpartition("/")
    found = get(f"{subject['kind']}.{version}.{group}", subject["name"], namespace=NAMESPACE)
    if found is None:
        return False
    spec = found["spec"]["template"]["spec"]
    secrets = [
        source.get("secret", {}).get("name")
        for volume in spec.get("volumes", [])
        for source in volume.get("projected", {}).get("sources", [])
    ]
    knows = any(one["name"] == "K_SINK" for one in spec["containers"][0].get("env", []))
    return knows and (not token or token in secrets)


def ttl(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `kubectl ttl` as an operator does; the caller checks its exit code."""
    command = [*COMMAND, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@contextmanager
def without_ticks() -> Iterator[None]:
    """No sweep for as long: what is deleted, events led to. A PingSource of the same name follows."""
    tick = json.loads(kubectl("-n", NAMESPACE, "get", "pingsource", "sweep", "-o", "json"))
    kubectl("-n", NAMESPACE, "delete", "pingsource", "sweep")
    try:
        yield
    finally:
        metadata = {name: tick["metadata"][name] for name in ("name", "namespace", "labels")}
        create({**tick, "metadata": metadata})


def edit(config_map: str, key: str, text: str) -> None:
    """Change a ConfigMap that is mounted, in place, as `kubectl edit` does.

    A kubelet brings it to the Pods within a minute or two. Where Pods are processes of this machine there is none, and
    what it does is done here: a new folder beside the old one, and the link to it turned at once.

    Args:
        config_map: Its name up to the hash, which is the volume's name too.
        key: The file.
        text: What it holds from now on.
    """
    listed = kubectl(
        "-n", NAMESPACE, "get", "configmaps", "-l", f"app.kubernetes.io/component={config_map}", "-o", "name"
    )
    (name,) = listed.split()
    kubectl("-n", NAMESPACE, "patch", name, "--type=merge", "-p", json.dumps({"data": {key: text}}))
    for volume in _pods_here().glob(f"{NAMESPACE}_*/volumes/{config_map}") if server_pid() else ():
        folder = volume / f"..{time.time_ns()}"
        folder.mkdir()
        (folder / key).write_text(text)
        _link(volume / "..data", folder.name)
        _link(volume / key, f"..data/{key}")


def _link(path: Path, target: str) -> None:
    new = path.with_name("..new")
    new.symlink_to(target)
    new.replace(path)


def log_of(function: str) -> str:
    """What a function's Pods wrote so far, those of earlier installations first."""
    if server_pid():
        return _logs_here(f"{NAMESPACE}_{function}-*")
    selector = f"serving.knative.dev/service={function}"
    return kubectl("-n", NAMESPACE, "logs", "-l", selector, "-c", "user-container", "--tail=-1")


def log_of_data_plane(deployment: str) -> str:
    """What the Pods of a Deployment of Knative Eventing wrote so far."""
    if server_pid():
        return _logs_here(f"{KNATIVE}_{deployment}-*")
    return kubectl("-n", KNATIVE, "logs", f"deployment/{deployment}", "--tail=-1")


def log_of_pods_here() -> str:
    """What the program wrote that runs Pods as processes of this machine; empty for another cluster.

    It also gives Services their names. If a thread of it failed, all stays Ready, and no event arrives any more: then
    the text ends with that failure.
    """
    log = _pods_here().with_suffix(".log")
    text = log.read_text() if server_pid() and log.is_file() else ""
    failed = text.find("Exception in thread")
    return text if failed < 0 else text[: failed + 2_000]


def _logs_here(pods: str) -> str:
    logs = sorted(_pods_here().glob(f"{pods}/*.log"), key=lambda log: log.stat().st_mtime)
    return "".join(log.read_text() for log in logs)


def _pods_here() -> Path:
    return Path(os.environ["KUBECONFIG"]).parent / "pods"


def pods_of(function: str) -> dict[str, str]:
    """The names, by uid, of a function's Pods that are not on their way out."""
    alive = [one for one in _pods() if "deletionTimestamp" not in one]
    return {one["uid"]: one["name"] for one in alive if one["name"].startswith(f"{function}-")}


def services() -> dict[str, dict[str, Any]]:
    """The Knative Services, by name."""
    listed = json.loads(kubectl("-n", NAMESPACE, "get", "services.serving.knative.dev", "-o", "json"))["items"]
    return {one["metadata"]["name"]: one for one in listed}


def min_scales() -> dict[str, int]:
    """How many Pods each Knative Service asks for, also without requests."""
    return {
        name: int(service["spec"]["template"]["metadata"].get("annotations", {}).get(MIN_SCALE, 0))
        for name, service in services().items()
    }


def ending_pods(namespace: str = NAMESPACE) -> list[str]:
    """The names of Pods on their way out, which may still get requests."""
    return [one["name"] for one in _pods(namespace) if "deletionTimestamp" in one]


def _pods(namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The metadata of all Pods, of the installation unless another namespace is given."""
    listed = json.loads(kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]
    return [pod["metadata"] for pod in listed]


def kill(function: str) -> None:
    """End a function's Pods without grace, and wait for others in their place; one that is scaled to zero has none."""
    before = pods_of(function)
    if not before and function not in ALWAYS_RUNNING:
        return
    assert before, f"no Pod of {function}"
    kubectl("-n", NAMESPACE, "delete", "pod", *before.values(), "--grace-period=0", "--force", "--wait=false")
    wait(f"another Pod of {function}", lambda: pods_of(function).keys() - before.keys())


def events(reason: str) -> list[dict[str, Any]]:
    """The Events of the installation with a reason."""
    selector = f"--field-selector=reason={reason}"
    found: list[dict[str, Any]] = json.loads(kubectl("-n", NAMESPACE, "get", "events", selector, "-o", "json"))["items"]
    return found


def broker_url() -> str:
    """Where the Broker takes events, inside the cluster."""
    return kubectl("-n", NAMESPACE, "get", "broker", "default", "-o", "jsonpath={.status.address.url}")


def broker_audience() -> str:
    """Whom a token for the Broker must be meant for."""
    return kubectl("-n", NAMESPACE, "get", "broker", "default", "-o", "jsonpath={.status.address.audience}")
