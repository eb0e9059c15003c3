"""`watch` on a real kube-apiserver: what reaches the Broker, here an HTTP server that can be away or slow."""

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.settings import Settings
from shared.adapters.events.cloudevents import Event, parse_event, parse_message
from shared.adapters.kubernetes.connect import connect
from shared.bootstrap.config import ProcessConfig
from shared.core.kinds.rule import Catalogue
from shared.devserver.real_servers import RealServer, real_server
from shared.evaluation.evaluator import Evaluator
from shared.messages import Message, SweepStep
from shared.source.watches import KindWatches
from tests.fakes import FakeTelemetry
from tests.integration.conftest import Api, Run
from tests.servers import shared_server  # noqa: F401 - a fixture

SPEC = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/work:1"}]}
CHANGE = "dev.knative.apiserver.resource."


class Sink:
    """Stands for a Broker.

    Attributes:
        answer: The HTTP status of every answer, by the event.
        offered: Every event that came.
        taken: Those that were answered with 202.
    """

    def __init__(self, port: int = 0) -> None:
        self.answer: Callable[[Event], int] = lambda _: 202
        self.offered: list[Event] = []
        self.taken: list[Event] = []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                event = parse_event(headers, self.rfile.read(int(headers["content-length"])))
                sink.offered.append(event)
                status = sink.answer(event)
                if status == 202:
                    sink.taken.append(event)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/ns/default"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def sweeps(self) -> set[str]:
        """The kinds whose sweep was asked for."""
        return {kind for event in self.taken if event.type == SweepStep.type for kind in swept(event)}

    def message(self) -> set[str]:
        """Return the names of the objects whose events arrived."""
        return {event.extensions["name"] for event in self.taken if event.type.startswith(CHANGE)}

    def ids(self) -> set[str]:
        return {event.id for event in self.taken if event.type.startswith(CHANGE)}


def swept(event: Event) -> tuple[str, ...]:
    return parse_message(event, SweepStep).kinds


@pytest.fixture
def sink() -> Iterator[Sink]:
    sink = Sink()
    yield sink
    sink.close()


@pytest.fixture
def start_watch(server: RealServer, tmp_path: Path, namespace: str) -> Iterator[Callable[..., Run]]:
    """Start `watch` on the test's namespace; it is stopped with the test."""
    started: list[Run] = []

    def start(url: str, *options: str) -> Run:
        folder = tmp_path / f"{len(started)}"
        folder.mkdir()
        sink = ("--sink", url) if url else ()
        started.append(Run(server, folder, "watch", "--namespace", namespace, *sink, *options))
        return started[-1]

    yield start
    for run in started:
        run.stop(signal.SIGKILL)


class Pods:
    """Pods of one namespace, and the kubelet that they lack."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def create(self, name: str, **annotations: str) -> Any:
        ours = {f"ttlafterfinished.dev/{key}": value for key, value in annotations.items()}
        return self.api.call("POST", self.path, {"metadata": {"name": name, "annotations": ours}, "spec": SPEC})

    def finish(self, name: str) -> Any:
        now = datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
        container = {"name": "main", "image": "example.com/work:1", "imageID": "", "ready": False, "restartCount": 0}
        status = {"phase": "Succeeded", "containerStatuses": [{**container, "state": {"terminated": ended}}]}
        return self.api.call("PATCH", f"{self.path}/{name}/status", {"status": status})

    def create_finished(self, name: str, **annotations: str) -> Any:
        self.create(name, **annotations)
        return self.finish(name)


@pytest.fixture
def pods(api: Api, namespace: str) -> Pods:
    return Pods(api, namespace)


Start = Callable[..., Run]


def watching(pods: Pods, sink: Sink, kind: str = "v1/Pod") -> None:
    pods.api.wait(f"the watch of {kind}", lambda: kind in sink.sweeps())


def test_finished_object_causes_a_complete_event(pods, sink, start_watch: Start) -> None:
    start_watch(sink.url, "--kinds", "pods")
    watching(pods, sink)
    finished = pods.create_finished("hello", ttl="1h")
    pods.api.wait("the event", lambda: "hello" in sink.message())
    (event,) = [event for event in sink.taken if event.type.startswith(CHANGE)]

    metadata = finished["metadata"]
    assert event.id == f"{metadata['uid']}/{metadata['resourceVersion']}/update"
    assert event.source == pods.api.server.url
    assert json.loads(event.data) == finished


def test_object_finished_before_the_start_is_left_to_the_requested_sweep(pods, sink, start_watch: Start) -> None:
    pods.create_finished("before", ttl="1h")
    start_watch(sink.url)  # of all kinds, one of which is not installed
    watching(pods, sink)
    watching(pods, sink, "batch/v1/Job")
    pods.create_finished("after", ttl="1h")
    pods.api.wait("the event", lambda: "after" in sink.message())

    assert sink.message() == {"after"}


def test_only_finished_objects_with_a_ttl_cause_events(pods, sink, start_watch: Start) -> None:
    start_watch(sink.url, "--kinds", "pods")
    watching(pods, sink)
    pods.create_finished("without")
    pods.create_finished("held", ttl="1h", hold="look at it")
    pods.create("unfinished", ttl="1h")
    pods.create_finished("last", ttl="1h")
    pods.api.wait("the last one", lambda: "last" in sink.message())

    assert sink.message() == {"last"}


def test_two_sources_give_the_same_event_ids(pods, sink, start_watch: Start) -> None:
    other = Sink()
    for url in (sink.url, other.url):
        start_watch(url, "--kinds", "pods")
    for each in (sink, other):
        watching(pods, each)
    for name in ("one", "two"):
        pods.create_finished(name, ttl="1h")
    for each in (sink, other):
        pods.api.wait("both", lambda each=each: each.message() == {"one", "two"})
    other.close()

    assert sink.ids() == other.ids()


def test_failing_sink_receives_every_event_after_it_recovers(pods, sink, start_watch: Start) -> None:
    run = start_watch(sink.url, "--kinds", "pods")
    watching(pods, sink)
    sink.answer = lambda _: 503
    pods.create_finished("hello", ttl="1h")
    pods.api.wait("a few attempts", lambda: len([one for one in sink.offered if "name" in one.extensions]) >= 3)
    sink.answer = lambda _: 202
    pods.api.wait("the event", lambda: "hello" in sink.message())

    assert len({event.id for event in sink.offered if "name" in event.extensions}) == 1
    assert "lost" not in run.text


def test_sink_that_starts_later_receives_the_sweep_request(pods, start_watch: Start) -> None:
    closed = Sink()
    closed.close()
    pods.create_finished("before", ttl="1h")
    start_watch(closed.url, "--kinds", "pods")
    time.sleep(2)
    sink = Sink(closed.port)
    watching(pods, sink)
    sink.close()


def test_refused_event_is_reported_and_the_others_are_sent(pods, sink, start_watch: Start) -> None:
    run = start_watch(sink.url, "--kinds", "pods")
    watching(pods, sink)
    sink.answer = lambda event: 400 if event.extensions.get("name") == "poison" else 202
    pods.create_finished("poison", ttl="1h")
    pods.create_finished("sound", ttl="1h")
    pods.api.wait("the sound one", lambda: "sound" in sink.message())
    pods.api.wait("the word", lambda: "event dropped; the next sweep handles its object" in run.text)

    assert "refused dev.knative.apiserver.resource.update with 400" in run.text
    assert len([event for event in sink.offered if event.extensions.get("name") == "poison"]) == 1


def test_slow_event_delays_no_other(pods, sink, start_watch: Start) -> None:
    over = threading.Event()
    sink.answer = lambda event: over.wait(30) and 202 if event.extensions.get("name") == "slow" else 202
    start_watch(sink.url, "--kinds", "pods")
    watching(pods, sink)
    names = {f"quick-{number}" for number in range(40)}
    for name in ("slow", *sorted(names)):
        pods.create_finished(name, ttl="1h")
    try:
        pods.api.wait("all the others", lambda: sink.message() == names)
    finally:
        over.set()
    pods.api.wait("the slow one", lambda: "slow" in sink.message())


def test_sigterm_ends_the_watch_with_exit_code_0(pods, sink, start_watch: Start) -> None:
    run = start_watch(sink.url)
    watching(pods, sink)

    assert run.stop() == 0
    assert run.text.endswith("stopped\n")


@pytest.mark.realtime
def test_sigterm_ends_the_watch_quickly_if_the_sink_hangs(pods, sink, start_watch: Start) -> None:
    over = threading.Event()
    sink.answer = lambda _: 202 if over.wait(60) else 500
    run = start_watch(sink.url, "--kinds", "pods")
    pods.api.wait("the request for a sweep", lambda: sink.offered)
    begun = time.monotonic()
    try:
        assert run.stop() == 0
    finally:
        over.set()

    assert time.monotonic() - begun < 10  # the sink would have had a quarter of an hour
    assert "Traceback" not in run.text


def test_watch_without_a_sink_does_not_start(start_watch: Start) -> None:
    run = start_watch("")

    assert run.process.wait(30) == 2
    assert run.text.startswith("Error: K_SINK: ")


class Account:
    """A service account with a kubeconfig of its own."""

    def __init__(self, api: Api, namespace: str, folder: Path) -> None:
        self.api, self.namespace = api, namespace
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        api.call("POST", accounts, {"metadata": {"name": "watcher"}})
        token = api.call("POST", f"{accounts}/watcher/token", {"spec": {}})["status"]["token"]
        config = yaml.safe_load(api.server.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        self.kubeconfig = folder / "watcher.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def allow(self, name: str, *verbs: str) -> None:
        """To read the resource of this name in the namespace."""
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}"
        rules = [{"apiGroups": [""], "resources": [name], "verbs": verbs}]
        self.api.call("POST", f"{rbac}/roles", {"metadata": {"name": name}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        subject = {"kind": "ServiceAccount", "name": "watcher", "namespace": self.namespace}
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        self.api.call("POST", f"{rbac}/rolebindings", binding)


@pytest.fixture
def account(api: Api, namespace: str, tmp_path: Path) -> Account:
    return Account(api, namespace, tmp_path)


def test_watch_without_rights_ends_with_an_error(account, sink, start_watch: Start) -> None:
    run = start_watch(sink.url, "--kubeconfig", str(account.kubeconfig))

    assert run.process.wait(30) == 1
    assert "is forbidden" in run.text.splitlines()[-1]
    assert "Traceback" not in run.text


def test_list_and_watch_rights_suffice_and_a_forbidden_kind_stops_no_other(
    account, pods, sink, start_watch: Start
) -> None:
    account.allow("pods", "list", "watch")
    run = start_watch(sink.url, "--kinds", "jobs,pods", "--kubeconfig", str(account.kubeconfig))
    watching(pods, sink)
    pods.create_finished("hello", ttl="1h")
    pods.api.wait("the event", lambda: "hello" in sink.message())

    assert "kind not watched: a right is missing kind=jobs.batch" in run.text
    assert run.process.poll() is None


class Events:
    """Takes what watches of this process tell."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sweeps = 0
        self.changed = asyncio.Condition()

    async def send(self, event: Event) -> None:
        async with self.changed:
            self.names.append(event.extensions["name"])
            self.changed.notify_all()

    async def publish(self, message: Message) -> None:
        async with self.changed:
            self.sweeps += 1
            self.changed.notify_all()

    async def wait_for(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(true)


def test_watch_with_an_expired_version_requests_a_sweep_and_continues(
    server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is one that etcd has forgotten: without a watch cache the API server's 410 comes at once."""
    monkeypatch.setattr("shared.source.watches.SWEEP_PAUSE_SECONDS", 0.1)
    with real_server(server.assets, fsync=False, apiserver_args=["--watch-cache-sizes=pods#0"]) as forgetful:
        api = Api(forgetful)
        api.wait("the namespace", lambda: api.get("/api/v1/namespaces/default"))
        forgetful.compact()
        begun = asyncio.run(_lose_the_place(Pods(api, "default"), monkeypatch))

    assert begun[0] == "1"
    assert int(begun[1]) > 1


async def _lose_the_place(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Watch from an expired version; return where each watch began, once the event of a later object arrived."""
    cluster = await connect(kubeconfig=str(pods.api.server.kubeconfig))
    watch = cluster.watch
    begun: list[str] = []

    def watch_from_long_ago(rule: Any, version: str, **options: Any) -> Any:
        begun.append(version if begun else "1")
        return watch(rule, begun[-1], **options)

    monkeypatch.setattr(cluster, "watch", watch_from_long_ago)
    kinds = Catalogue(tuple(rule for rule in read_catalogue().rules if rule.kind == "Pod"))
    config = ProcessConfig(
        settings=Settings(), kinds=kinds, catalogue=kinds, telemetry=FakeTelemetry(), namespace=pods.namespace
    )
    events = Events()
    evaluator = Evaluator(cluster, kinds)
    watching = asyncio.create_task(
        KindWatches(config, cluster, evaluator, send=events.send, publish=events.publish).run()
    )
    try:
        await events.wait_for(lambda: events.sweeps == 2)
        await asyncio.to_thread(pods.create_finished, "after", ttl="1h")
        await events.wait_for(lambda: "after" in events.names)
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        await cluster.close()
    return begun
