"""`kubectl ttl stop` on a real kube-apiserver: several processes that delete, one brake."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.cli.brake import STOPPED_WITHIN_SECONDS
from shared.devserver.ports import free_port
from shared.devserver.real_servers import RealServer
from shared.safeguards.shared_state import CACHED_SECONDS
from shared.safeguards.state_schema import NAME
from tests.builders import FRONT, ROOT
from tests.integration.conftest import Api, Run, run_command
from tests.integration.test_restraints import Pods
from tests.servers import shared_server  # noqa: F401 - a fixture

Ttl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ttl(server: RealServer) -> Ttl:
    """`kubectl ttl` as an operator calls it."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return run_command(server.kubeconfig, *words)

    return run


class Function:
    """`expire` alone, under uvicorn, as a container runs it."""

    def __init__(self, server: RealServer, folder: Path, **settings: str) -> None:
        self.log, self.port, self.metrics_port = folder / "expire.log", free_port(), free_port()
        environment = {
            **os.environ,
            "KUBECONFIG": str(server.kubeconfig),
            "FUNCTION_TARGET": "expire",
            "FUNCTION_SOURCE": "functions/expire.py",
            "TTL_METRICS_PORT": str(self.metrics_port),
            **settings,
        }
        program = [
            "functions_framework.aio:app",
            "--http",
            FRONT,
            "--lifespan",
            "on",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", *program], cwd=ROOT, env=environment, stderr=log
            )

    @property
    def text(self) -> str:
        return self.log.read_text()

    def is_up(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def fire(self, namespace: str, name: str, uid: str) -> int:
        ref = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}
        data = {"ref": ref, "purpose": "expire", "dueAt": "2026-01-01T00:00:00Z"}
        headers = {
            "content-type": "application/json",
            "ce-specversion": "1.0",
            "ce-id": name,
            "ce-source": "/test",
            "ce-type": "dev.ttlafterfinished.timer.fired",
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", "/", json.dumps(data), headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def metric(self, name: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return next(line.split()[1] for line in lines if line.startswith(f"{name} "))


class Feed:
    """Finishes Pods that are due at once, again and again, until it is ended.

    Args:
        pods: Of one namespace.
        write_event: Called with each Pod; None where a watch finds it.
    """

    def __init__(self, pods: Pods, write_event: Callable[[str, str, str], object] | None = None) -> None:
        self.pods, self.uids = pods, dict[str, str]()
        self._write_event, self._is_over = write_event, threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        while not self._is_over.wait(0.05):
            name = f"pod-{len(self.uids)}"
            self.uids[name] = self.pods.finish(name)
            if self._write_event:
                self._write_event(self.pods.namespace, name, self.uids[name])

    def there(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods.api.call("GET", self.pods.path)["items"]}

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(30)


@pytest.fixture
def places(api: Api, namespace: str) -> list[Pods]:
    """Three namespaces, one for what each process deletes."""
    others = [f"{namespace[:50]}-{number}" for number in range(2)]
    for other in others:
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    return [Pods(api, one) for one in (namespace, *others)]


@pytest.fixture
def processes(
    server: RealServer, namespace: str, places: list[Pods], tmp_path: Path
) -> Iterator[tuple[Run, Run, Function]]:
    """A leader, one that is none, and a function; all of them read the brake of the test's namespace."""
    folders = [tmp_path / name for name in ("leader", "alone", "function")]
    for folder in folders:
        folder.mkdir()
    home = ("--lease-namespace", namespace, "--kinds", "pods")
    leader = Run(server, folders[0], "run", "-n", places[0].namespace, *home, "-v")
    alone = Run(server, folders[1], "run", "-n", places[1].namespace, *home, "--no-lease", "-v")
    function = Function(server, folders[2], TTL_NAMESPACE=namespace, TTL_KINDS="pods")
    yield leader, alone, function
    for process in (leader.process, alone.process, function.process):
        process.send_signal(signal.SIGKILL)
        process.wait(30)


def start_all(api: Api, places: list[Pods], function: Function) -> list[Feed]:
    """Objects that are due, again and again; each process has deleted some of its own."""
    api.wait("the function", function.is_up)
    feeds = [Feed(places[0]), Feed(places[1]), Feed(places[2], function.fire)]
    for feed in feeds:
        api.wait("deletions by each process", lambda feed=feed: len(set(feed.uids) - feed.there()) > 5)
    return feeds


def is_reported(process: Run | Function) -> bool:
    return "deletions are stopped" in process.text and "the dashboards look wrong" in process.text


def test_after_a_stop_no_process_deletes_and_after_a_start_nothing_is_lost(
    api: Api, namespace: str, places: list[Pods], processes: tuple[Run, Run, Function], ttl: Ttl
) -> None:
    function = processes[2]
    feeds = start_all(api, places, function)
    stopped = ttl("stop", "--reason", "the dashboards look wrong", "-n", namespace)
    assert stopped.returncode == 0, stopped.stderr
    assert f"stopped: namespace {namespace}: " in stopped.stdout

    time.sleep(STOPPED_WITHIN_SECONDS)
    kept = [(len(feed.uids), feed.there()) for feed in feeds]
    for feed, (count, _) in zip(feeds, kept, strict=True):
        api.wait("more that is due", lambda feed=feed, count=count: len(feed.uids) > count + 20)
        feed.end()
    for feed, (count, before) in zip(feeds, kept, strict=True):
        assert before | set(list(feed.uids)[count:]) <= feed.there()
    for process in processes:
        api.wait("the log", lambda process=process: is_reported(process))
    assert function.metric("ttl_stopped") == "1.0"

    started = ttl("start", "-n", namespace)
    assert started.returncode == 0, started.stderr
    assert "the dashboards look wrong" in started.stdout
    for feed in feeds[:2]:  # whose processes sweep by themselves
        api.wait("what was kept", lambda feed=feed: not feed.there())
    time.sleep(CACHED_SECONDS)
    for name in feeds[2].there():
        assert function.fire(places[2].namespace, name, feeds[2].uids[name]) in (200, 204)
    api.wait("what was kept", lambda: not feeds[2].there())
    for process in processes:
        api.wait("the report", lambda process=process: "deletions are started again" in process.text)
    assert function.metric("ttl_stopped") == "0.0"
    assert {"Stopped", "Started"} <= {one["reason"] for one in api.call("GET", places[0].events)["items"]}


@pytest.mark.smoke
def test_run_deletes_nothing_after_a_stop_and_what_is_due_after_the_start(
    api: Api, namespace: str, start_run: Callable[..., Run], ttl: Ttl
) -> None:
    pods = Pods(api, namespace)
    assert ttl("stop", "--reason", "the dashboards look wrong", "-n", namespace).returncode == 0
    run = start_run("--kinds", "pods", "-v")
    pods.finish("due")
    api.wait("the refusal", lambda: "reason=stopped" in run.text)
    assert is_reported(run)
    assert not pods.is_gone("due")

    assert ttl("start", "-n", namespace).returncode == 0
    api.wait("the deletion", lambda: pods.is_gone("due"))


def test_process_that_starts_during_a_stop_reports_it_and_deletes_nothing(
    api: Api, server: RealServer, namespace: str, tmp_path: Path, ttl: Ttl
) -> None:
    pods = Pods(api, namespace)
    pods.finish("due")
    assert ttl("stop", "--reason", "why not", "-n", namespace).returncode == 0
    for number, options in enumerate(((), ("--no-lease",), ("--dry-run",))):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = Run(server, folder, "run", "-n", namespace, "--lease-namespace", namespace, "-k", "pods", "-v", *options)
        expected = "would-delete" if "--dry-run" in options else "reason=stopped"
        api.wait("the sweep", lambda run=run, expected=expected: expected in run.text)
        assert "why not" in run.text.partition("sweep at start")[0]
        assert run.stop() == 0
    assert not pods.is_gone("due")


def test_explain_plan_and_doctor_show_a_stop(api: Api, namespace: str, ttl: Ttl, monkeypatch: Any) -> None:
    pods = Pods(api, namespace)
    pods.finish("due")
    monkeypatch.setenv("TTL_NAMESPACE", namespace)
    assert ttl("stop", "--reason", "the dashboards look wrong", "-n", namespace).returncode == 0

    for words in (("explain", "pod/due", "-n", namespace), ("plan", "-n", namespace)):
        shown = ttl(*words)
        reported = shown.stdout + shown.stderr
        assert "the dashboards look wrong" in reported
        assert f"kubectl ttl start -n {namespace}" in reported
    found = json.loads(ttl("explain", "pod/due", "-n", namespace, "-o", "json").stdout)
    assert "stopped" in [one["reason"] for one in found["obstacles"]]
    checked = ttl("doctor", "-n", namespace)
    assert checked.returncode == 1
    assert "the dashboards look wrong" in checked.stdout
    assert f"kubectl ttl start -n {namespace}" in checked.stdout


def test_stop_without_a_namespace_stops_wherever_a_run_has_its_lease(
    api: Api, server: RealServer, namespace: str, tmp_path: Path, ttl: Ttl
) -> None:
    run = Run(server, tmp_path, "run", "-n", namespace, "--lease-namespace", namespace, "-k", "pods")
    pods = Pods(api, namespace)
    try:
        api.wait("the leader", lambda: "sweep at start" in run.text)
        stopped = ttl("stop", "--reason", "everything")
        assert stopped.returncode == 0, stopped.stderr
        assert "stopped: namespace default: " in stopped.stdout
        assert f"stopped: namespace {namespace}: " in stopped.stdout
        assert "namespace ttl-after-finished:" not in stopped.stdout
        assert "namespace ttl-after-finished does not exist; functions without TTL_NAMESPACE" in stopped.stderr
        assert "stop" in pods.data()
        assert "stop" in api.get(f"/api/v1/namespaces/default/configmaps/{NAME}")["data"]
    finally:
        started = ttl("start")
        run.stop(signal.SIGKILL)
    assert started.returncode == 0, started.stderr
    assert "stop" not in pods.data()
    again = ttl("start")
    assert again.returncode == 1
    assert "nothing is stopped" in again.stderr


def test_stop_reaches_the_namespace_that_a_leader_names_on_its_lease(
    api: Api, server: RealServer, namespace: str, tmp_path: Path, ttl: Ttl, monkeypatch: Any
) -> None:
    home, pods = f"{namespace[:50]}-home", Pods(api, namespace)
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": home}})
    with monkeypatch.context() as patched:
        patched.setenv("TTL_NAMESPACE", home)
        run = Run(server, tmp_path, "run", "-n", namespace, "-k", "pods", "-v")
    try:
        api.wait("the leader", lambda: "sweep at start" in run.text)
        named = ttl("stop", "--reason", "one", "-n", "default")
        assert f"whose brake is in namespace {home}" in named.stdout
        stopped = ttl("stop", "--reason", "everything")
        assert stopped.returncode == 0, stopped.stderr
        assert f"stopped: namespace {home}: " in stopped.stdout
        time.sleep(STOPPED_WITHIN_SECONDS)
        pods.finish("due")
        api.wait("the timer", lambda: "reason=stopped" in run.text)
        assert not pods.is_gone("due")
        for words in (("plan", "-n", namespace), ("explain", "pod/due", "-n", namespace), ("doctor",)):
            shown = ttl(*words)
            assert f"kubectl ttl start -n {home}" in shown.stdout + shown.stderr
    finally:
        started = ttl("start")
        run.stop(signal.SIGKILL)
    assert f"started: namespace {home}; " in started.stdout


def test_run_that_may_not_read_the_brake_does_not_start(
    api: Api, server: RealServer, namespace: str, tmp_path: Path, ttl: Ttl, monkeypatch: Any
) -> None:
    """No person could stop it."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.call("POST", accounts, {"metadata": {"name": "dev"}})
    token = api.call("POST", f"{accounts}/dev/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))

    words = ("run", "--no-lease", "-k", "pods", "--policy", "none", "--lease-namespace", namespace)
    denied = ttl(*words, "--kubeconfig", str(kubeconfig))

    assert denied.returncode == 1
    assert f"ConfigMap {namespace}/{NAME}" in denied.stderr
    stopped = ttl("stop", "--reason", "x", "-n", namespace, "--kubeconfig", str(kubeconfig))
    assert stopped.returncode == 1
    assert "forbidden" in stopped.stderr


def test_stop_rejects_an_empty_namespace(ttl: Ttl) -> None:
    assert ttl("stop", "--reason", "x", "-n", "").returncode == 2
    assert ttl("start", "-n", "").returncode == 2


def test_stop_rejects_a_namespace_that_does_not_exist(ttl: Ttl) -> None:
    stopped = ttl("stop", "--reason", "x", "-n", "there-is-none")
    assert stopped.returncode == 1
    assert "there-is-none" in stopped.stderr
