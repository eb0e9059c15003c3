"""A real API server with the real Job controller, and `run` as a user starts it: a process of its own."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.devserver.real_servers import RealServer, find_assets
from tests.builders import COMMAND
from tests.required import PLACES, required

WAIT_SECONDS = 120
"""How long a test waits for an event: on a busy machine, the start of a process and its first sweep take a minute."""


class Api:
    """The API server, for tests: plain calls that return JSON."""

    def __init__(self, server: RealServer) -> None:
        self.server = server

    def call(self, method: str, path: str, body: Any = None) -> Any:
        return json.loads(self.send(method, path, None if body is None else json.dumps(body).encode()))

    def send(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The bytes that are sent, and those that come."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            f"{self.server.url}{path}",
            method=method,
            data=body,
            headers={"Authorization": f"Bearer {self.server.token}", "Content-Type": kind},
        )
        with urllib.request.urlopen(request, context=self.server.ssl, timeout=90) as response:
            answer: bytes = response.read()
            return answer

    def get(self, path: str) -> Any:
        """The object, or None where there is none."""
        try:
            return self.call("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def watch(self, path: str) -> Iterator[Any]:
        """The events of a watch, until the server ends it."""
        request = urllib.request.Request(
            f"{self.server.url}{path}", headers={"Authorization": f"Bearer {self.server.token}"}
        )
        with urllib.request.urlopen(request, context=self.server.ssl, timeout=WAIT_SECONDS) as response:
            yield from map(json.loads, response)

    def wait(self, what: str, true: Callable[..., Any], seconds: float = WAIT_SECONDS) -> Any:
        deadline = time.monotonic() + seconds
        while not (value := true()):
            assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
            time.sleep(0.05)
        return value


def run_command(kubeconfig: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `kubectl ttl` as an operator of the cluster does; the caller checks its exit code."""
    inherited = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    return subprocess.run(
        [*COMMAND, *words],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


def limited_kubeconfig(server: RealServer, api: Api, namespace: str, folder: Path, *rules: dict[str, Any]) -> Path:
    """The kubeconfig of a service account that has only these rights, in all namespaces."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.call("POST", accounts, {"metadata": {"name": "limited"}})
    token = api.call("POST", f"{accounts}/limited/token", {"spec": {"expirationSeconds": 600}})["status"]["token"]
    roles, name = "/apis/rbac.authorization.k8s.io/v1", f"limited-{namespace}"
    api.call("POST", f"{roles}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": "limited", "namespace": namespace}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": subjects}
    api.call("POST", f"{roles}/clusterrolebindings", binding)
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "limited.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


class Run:
    """A `ttl-after-finished` process."""

    def __init__(self, server: RealServer, folder: Path, command: str, *options: str) -> None:
        self.log = folder / f"{command}.log"
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "XDG_STATE_HOME": str(folder)}
        program = [*COMMAND, command, *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(program, env=environment, stderr=log, stdout=log)

    @property
    def text(self) -> str:
        return self.log.read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS)


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    """Which of Kubernetes' own controllers run; a file may have others."""
    return ["job-controller", "garbage-collector-controller", "clusterrole-aggregation-controller"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, controllers: list[str]) -> Iterator[RealServer]:
    """One for each file: some install CRDs that others want absent."""
    assets = find_assets()
    has_controllers = assets is not None and (assets / "kube-controller-manager").exists()
    reason = f"no kube-apiserver, etcd and kube-controller-manager in {PLACES}"
    assets = required(assets if has_controllers else None, reason)
    server = RealServer(assets, tmp_path_factory.mktemp("real"), fsync=False)
    try:
        server.start_controllers(controllers, qps=200, burst=400)
        yield server
    finally:
        server.stop()


@pytest.fixture
def api(server: RealServer) -> Api:
    return Api(server)


@pytest.fixture
def namespace(api: Api, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    reported = re.sub(r"[^a-z0-9]+", "-", request.node.name)[:50].strip("-")
    name = f"{reported}-{zlib.crc32(request.node.nodeid.encode()):08x}"  # long names differ in their ends only
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def start_run(server: RealServer, tmp_path: Path, namespace: str) -> Iterator[Callable[..., Run]]:
    """Start `run` on the test's namespace, or on all of them; it is stopped with the test."""
    started: list[Run] = []

    def start(*options: str, everywhere: bool = False) -> Run:
        place = () if everywhere else ("--namespace", namespace)
        run = Run(server, tmp_path, "run", *place, "--lease-namespace", namespace, *options)
        started.append(run)
        return run

    yield start
    for run in started:
        run.stop(signal.SIGKILL)
        print(run.text)  # pytest shows it for a test that failed


@pytest.fixture
def start_ui(server: RealServer, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start `ui`; returns its address."""
    started: list[Run] = []

    def start(*options: str) -> str:
        run = Run(server, tmp_path, "ui", "--port", "0", "--refresh", "5s", *options)
        started.append(run)
        found: list[str] = []
        for _ in range(600):
            found = re.findall(r"serving (https?://\S+)/,", run.text)
            if found or run.process.poll() is not None:
                break
            time.sleep(0.05)
        assert found, run.text
        return found[0]

    yield start
    for run in started:
        assert run.stop(signal.SIGINT) == 0, run.text
        assert "Traceback" not in run.text
