"""Check what the timer engine of an installation needs, SQLite, NATS or Cloud Tasks, and that its Pods run.

NATS needs Pods and replicas, the Service of the servers, and Secrets.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from shared.adapters.config.settings import Settings
from shared.adapters.config.timers_address import CloudTasksAddress, NatsAddress, TimersAddress
from shared.adapters.kubernetes.bodies import METADATA
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.core.values.objects import get_in, get_text, list_mappings
from shared.doctor.findings import Finding, Level, fail, ok, unknown, warn
from shared.doctor.workloads import is_ready, pods_of
from shared.errors import TtlError
from shared.installation.inventory import Inventory, Obj, name_of, path_of
from shared.installation.place import Place

_WHAT = "timer engine"
_SCALE = "autoscaling.knative.dev"

REPLICAS_MIN = 3
"""The servers that hold the stream, so that the loss of one loses no timer and stops no set."""

_SERVICE_LABELS = 3
"""The labels of NAME.NAMESPACE.svc."""


@dataclass(frozen=True, slots=True)
class PodCount:
    """How many Pods of a workload may run, by its manifest.

    Attributes:
        least: The minimum.
        most: The maximum; None if there is none.
    """

    least: int
    most: int | None


def count_pods(workload: Obj) -> PodCount:
    """Read the number of Pods of a workload: its replicas, or the annotations of a Knative Service."""
    if get_text(workload, "apiVersion").startswith("serving.knative.dev/"):
        annotations = get_in(workload, "spec.template.metadata.annotations")
        given = annotations if isinstance(annotations, dict) else {}
        least, most = (str(given.get(f"{_SCALE}/{end}-scale", "")) for end in ("min", "max"))
        return PodCount(int(least) if least.isdecimal() else 0, int(most) or None if most.isdecimal() else None)
    replicas = get_in(workload, "spec.replicas")
    count = replicas if isinstance(replicas, int) else 1
    return PodCount(count, count)


def _check_sleep(workloads: Sequence[Obj], place: Place) -> Iterator[Finding]:
    """Report a `timers` that may scale to zero: an engine that fires the timers itself has to run."""
    if any(count_pods(one).least == 0 for one in workloads):
        detail = f"timers may scale to zero, and then no timer fires: expected {_SCALE}/min-scale of at least 1"
        yield fail(_WHAT, detail, place.apply(f"after you set {_SCALE}/min-scale of timers"))


def check_sqlite(workloads: Sequence[Obj], place: Place) -> Iterator[Finding]:
    """Check that at most one Pod may run, because each further Pod has another file."""
    problems = list(_check_sleep(workloads, place))
    most = [count.most for count in map(count_pods, workloads) if count.most is None or count.most > 1]
    if most:
        number = "any number of" if most[0] is None else str(most[0])
        detail = (
            f"TTL_TIMERS is a file, and {number} Pods of timers may run: expected at most one, since each has a file "
            "of its own"
        )
        note = f"after you set {_SCALE}/max-scale of timers to 1, or add components/timers-nats"
        problems.append(fail(_WHAT, detail, place.apply(note)))
    yield from problems
    if not problems and workloads:
        yield ok(_WHAT, f"sqlite, in {_describe_volumes(workloads)}")


def _describe_volumes(workloads: Sequence[Obj]) -> str:
    if any(get_in(one, "spec.volumeClaimTemplates") for one in workloads):
        return "a file on a claim"
    volumes = [volume for one in workloads for volume in list_mappings(one, "spec.template.spec.volumes")]
    if any("emptyDir" in volume for volume in volumes):
        return "an emptyDir: pending timers are lost with their Pod, and the next sweep sets them again"
    return "a file"


def check_cloud_tasks(settings: Settings, place: Place) -> Iterator[Finding]:
    """Check that Cloud Tasks has a URL to call, and an account to call it with."""
    needed = {"TTL_TASKS_TARGET": settings.tasks_target, "TTL_TASKS_ACCOUNT": settings.tasks_account}
    missing = [name for name, value in needed.items() if not value]
    for name in missing:
        detail = f"TTL_TIMERS is cloudtasks, which needs {name}: expected a value, got none"
        yield fail(_WHAT, detail, place.apply(f"with {name} in the settings"))
    if not missing:
        yield ok(_WHAT, f"{settings.timers}, which calls {settings.tasks_target} as {settings.tasks_account}")


async def check_nats(
    cluster: KubernetesCluster, found: Inventory, workloads: Sequence[Obj], settings: Settings, *, place: Place
) -> list[Finding]:
    """Check what timers on NATS need in the cluster; whether the servers answer is in the log of `timers`.

    Args:
        cluster: The cluster, with the operator's credentials.
        found: The inventory of the installation.
        workloads: The workloads `timers`.
        settings: The settings, with the address of the servers.
        place: The installation.
    """
    address = settings.timers
    if not isinstance(address, NatsAddress):
        return []
    findings = [*_check_sleep(workloads, place), *_check_numbers(workloads, settings, place)]
    findings += await _check_services(cluster, address, place)
    findings += await _check_files(cluster, found, workloads, settings, place=place)
    if all(finding.level is Level.OK for finding in findings):
        servers = ", ".join(address.servers)
        findings.insert(0, ok(_WHAT, f"stream {address.stream} on {settings.nats_replicas} servers, at {servers}"))
    return findings


def _check_numbers(workloads: Sequence[Obj], settings: Settings, place: Place) -> Iterator[Finding]:
    if any(count_pods(one).most == 1 or count_pods(one).least == 1 for one in workloads):
        detail = "only one Pod of timers is certain to run, and no timer fires while it moves: expected two or more"
        yield warn(_WHAT, detail, place.apply("after you set autoscaling.knative.dev/min-scale of timers to 2"))
    if settings.nats_replicas < REPLICAS_MIN:
        count = settings.nats_replicas
        effect = "if this server is lost, its timers are lost" if count == 1 else "if one is lost, no timer can be set"
        detail = f"TTL_NATS_REPLICAS is {count}, so {effect}: expected {REPLICAS_MIN}"
        fix = place.apply("if there are as many servers", settings={"TTL_NATS_REPLICAS": f"{REPLICAS_MIN}"})
        yield warn(_WHAT, detail, fix)


async def _check_services(cluster: KubernetesCluster, address: NatsAddress, place: Place) -> list[Finding]:
    """Check the Services of this cluster that the address names; other servers cannot be checked from here."""
    ports: dict[tuple[str, str], set[int]] = {}
    for server in address.servers:
        url = urlsplit(server)
        if service := service_of(url.hostname or "", place.namespace):
            ports.setdefault(service, set()).add(url.port or 0)
    return [await _check_service(cluster, service, wanted, place) for service, wanted in ports.items()]


def service_of(host: str, namespace: str) -> tuple[str, str] | None:
    """Return namespace and name of the Service that a host names; None if the host may be outside of the cluster.

    Args:
        host: The host, such as `nats.nats.svc.cluster.local`, or that of a Pod behind a headless Service.
        namespace: The namespace in which a host without a dot is looked up.
    """
    labels = host.split(".")
    if len(labels) == 1 and ":" not in host:
        return (namespace, host)
    if "svc" not in labels[_SERVICE_LABELS - 1 : _SERVICE_LABELS + 1]:
        return None
    name, owner = labels[labels.index("svc", _SERVICE_LABELS - 1) - 2 :][:2]
    return (owner, name)


async def _check_service(
    cluster: KubernetesCluster, service: tuple[str, str], wanted: set[int], place: Place
) -> Finding:
    namespace, name = service
    what = f"NATS Service {namespace}/{name}"
    fix = place.apply("with the address of your NATS in TTL_TIMERS, or after you install NATS there")
    try:
        answer = await cluster.request("GET", f"{path_of('v1/services', namespace)}/{quote(name)}", missing_ok=True)
    except TtlError as error:
        return unknown(what, str(error), place)
    if answer is None:
        return fail(what, "TTL_TIMERS names it, and it does not exist: no timer can be set", fix)
    ports = {get_in(port, "port") for port in list_mappings(answer.body, "spec.ports")}
    if missing := sorted(wanted - ports) if ports else []:
        has = ", ".join(map(str, sorted(filter(None, ports))))
        return fail(what, f"TTL_TIMERS names port {missing[0]}: expected a port of the Service ({has})", fix)
    return ok(what, "exists")


async def _check_files(
    cluster: KubernetesCluster, found: Inventory, workloads: Sequence[Obj], settings: Settings, *, place: Place
) -> list[Finding]:
    """Check that each file of the settings is in a volume of `timers`, and that the Secret of the volume exists."""
    files = {
        "TTL_NATS_CREDENTIALS": settings.nats_credentials,
        "TTL_NATS_CA": settings.nats_ca,
        "TTL_NATS_CERTIFICATE": settings.nats_certificate,
        "TTL_NATS_KEY": settings.nats_key,
    }
    findings: list[Finding] = []
    secrets: dict[str, dict[str, str]] = {}
    for name, path in files.items():
        for workload in workloads if path else ():
            volume = _volume_of(workload, PurePosixPath(path or ""))
            if volume is None:
                detail = f"{name} is {path}: expected a file in a volume of timers, got a path outside of its volumes"
                fix = place.apply("after you add components/timers-nats/credentials or tls, or mount the file")
                findings.append(fail(_WHAT, detail, fix))
            elif secret := get_text(volume, "secret.secretName"):
                secrets.setdefault(secret, {})[name] = PurePosixPath(path or "").name
            elif (config := get_text(volume, "configMap.name")) and found.is_absent("ConfigMap", config):
                detail = f"the ConfigMap of {name} does not exist: timers cannot start"
                findings.append(fail(f"ConfigMap {config}", detail, place.command("get", "configmaps")))
    return findings + [await _check_secret(cluster, secret, keys, place) for secret, keys in secrets.items()]


def _volume_of(workload: Obj, path: PurePosixPath) -> Any | None:
    """Return the volume in which a path of the container is; None if it is in none."""
    volumes = {get_text(one, "name"): one for one in list_mappings(workload, "spec.template.spec.volumes")}
    for container in list_mappings(workload, "spec.template.spec.containers"):
        for mount in list_mappings(container, "volumeMounts"):
            if path.is_relative_to(get_text(mount, "mountPath") or "/nowhere"):
                return volumes.get(get_text(mount, "name"))
    return None


async def _check_secret(cluster: KubernetesCluster, secret: str, keys: Mapping[str, str], place: Place) -> Finding:
    """Check that a Secret exists; only its metadata is read. `keys` has the key of each setting."""
    what, names = f"Secret {secret}", " and ".join(keys)
    path = f"{path_of('v1/secrets', place.namespace)}/{quote(secret, safe='')}"
    try:
        answer = await cluster.request("GET", path, accept=METADATA, missing_ok=True)
    except TtlError as error:
        return unknown(what, str(error), place)
    if answer is None:
        files = (f"--from-file={key}=YOUR_FILE" for key in keys.values())
        detail = f"expected it in namespace {place.namespace} for {names}, got none: timers cannot start"
        return fail(what, detail, place.command("create", "secret", "generic", secret, *files))
    return ok(what, f"exists, for {names}")


_QUEUE_PROXY_PORT = 8012
_FUNCTION_PORT = 8080
_SERVER_ERROR = 500
_ANSWER_SECONDS_MAX = 5
_FORBIDDEN = 403
_LEVELS = (Level.OK, Level.WARN, Level.FAIL)


async def check_timers(
    cluster: KubernetesCluster, found: Inventory, settings: Settings | None, place: Place
) -> list[Finding]:
    """Check the Pods of `timers`, and what their engine needs.

    Args:
        cluster: The cluster, with the operator's credentials.
        found: The inventory of the installation.
        settings: The settings; None if they cannot be read. Then only the Pods are checked.
        place: The installation.
    """
    workloads = [workload for _, workload in found.workloads() if name_of(workload) == "timers"]
    address = settings.timers if settings else None
    if not workloads and (url := get_text(found.get("Trigger", "timers"), "spec.subscriber.uri")):
        return [ok("timers", f"outside of this cluster, at {url}; doctor does not check the engine there")]
    pods = [await check_timer_pods(cluster, found, workloads, address, place=place)]
    if settings is None:
        return pods
    if isinstance(address, CloudTasksAddress):
        return [*pods, *check_cloud_tasks(settings, place)]
    if isinstance(address, NatsAddress):
        return [*pods, *await check_nats(cluster, found, workloads, settings, place=place)]
    return [*pods, *check_sqlite(workloads, place)]


async def check_timer_pods(
    cluster: KubernetesCluster,
    found: Inventory,
    workloads: Sequence[Obj],
    address: TimersAddress | None,
    *,
    place: Place,
) -> Finding:
    """Check that a Pod of `timers` is ready, not more than one if a file holds the timers, and that each answers."""
    if found.parts["Pod"].problem:
        return unknown("timers", found.parts["Pod"].problem, place)
    running = [pod for workload in workloads for pod in pods_of(found, workload)]
    if not running and workloads and isinstance(address, CloudTasksAddress):
        return ok("timers", "scaled to 0; a call of Cloud Tasks starts a Pod")
    ready = list(filter(is_ready, running))
    on_claim = any(get_in(workload, "spec.selector") for workload in workloads)
    label = "app.kubernetes.io/component" if on_claim else "serving.knative.dev/service"
    show = place.command("get", "pods", "-l", f"{label}=timers")
    names = ", ".join(map(name_of, ready))
    if not ready:
        return fail("timers", "no Pod of timers is ready: only the sweep deletes objects, and late", show)
    if len(ready) > 1 and not isinstance(address, NatsAddress | CloudTasksAddress):
        detail = f"expected one Pod that keeps timers, got {len(ready)}: {names}; no problem during a rollout"
        return warn("timers", detail, show)
    has_policies = bool(found.all("NetworkPolicy"))
    answers = [await _call(cluster, pod, place, has_policies=has_policies) for pod in ready]
    worst = max(answers, key=lambda finding: _LEVELS.index(finding.level))
    if worst.level is Level.OK and len(ready) > 1:
        how = "are ready" if has_policies else "answer"
        return ok("timers", f"{len(ready)} Pods {how}: {names}")
    return worst


async def _call(cluster: KubernetesCluster, pod: Obj, place: Place, *, has_policies: bool) -> Finding:
    path = f"/api/v1/namespaces/{place.namespace}/pods/{name_of(pod)}:{port_of(pod)}/proxy/"
    try:
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            status, body = await cluster.probe(path)
    except TimeoutError:
        why = f"no answer within {_ANSWER_SECONDS_MAX} s"
        return _report_silence(name_of(pod), why, place, has_policies=has_policies)
    except TtlError as error:
        return unknown("timers", str(error), place)
    return report_answer(name_of(pod), status, body, place=place, has_policies=has_policies)


def port_of(pod: Obj) -> int:
    """Return the port that serves a Pod's function: that of Knative's queue-proxy if there is one, else its own."""
    containers = list(list_mappings(pod, "spec.containers"))
    if any(get_text(one, "name") == "queue-proxy" for one in containers):
        return _QUEUE_PROXY_PORT
    ports = [get_in(port, "containerPort") for one in containers for port in list_mappings(one, "ports")]
    return next((port for port in ports if isinstance(port, int)), _FUNCTION_PORT)


def report_answer(pod: str, status: int, body: Any, *, place: Place, has_policies: bool = False) -> Finding:
    """Report the answer to a GET through the API server's proxy.

    A function rejects a GET with 405, and that proves that it answers. A body of kind Status comes from the API server.
    """
    if get_text(body, "kind") != "Status":
        if status < _SERVER_ERROR:
            return ok("timers", f"one Pod, {pod}, and it answers")
        return fail("timers", f"Pod {pod} answered {status}: {body}", place.command("logs", pod, "--tail=20"))
    if status == _FORBIDDEN:
        return unknown("timers", f"Pod {pod} is ready, but {get_text(body, 'message')}", place)
    return _report_silence(pod, get_text(body, "message"), place, has_policies=has_policies)


def _report_silence(pod: str, why: str, place: Place, *, has_policies: bool) -> Finding:
    """Report a ready Pod that the API server cannot reach: expected if there are NetworkPolicies, else a warning."""
    if has_policies:
        return ok("timers", f"one Pod, {pod}, is ready; the NetworkPolicies do not let the API server call it")
    detail = f"Pod {pod} is ready, but the API server cannot reach it: {why}"
    return warn("timers", detail, place.command("describe", "pod", pod))
