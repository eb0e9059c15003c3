"""Archive before delete on a real kube-apiserver with the real Job controller, through `run` as a user starts it."""

import asyncio
import http.server
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from shared.adapters.archive.open_archive import open_archive
from shared.core.archive.document import Document, canonical, digest_of
from shared.core.archive.layout import SUFFIX, ArchiveKey, parse_key
from shared.core.values.objects import parse_instant
from tests.builders import not_none
from tests.integration.conftest import Api, Run, run_command
from tests.integration.test_run import Cluster
from tests.s3_servers import S3Server, required_s3_program, s3_server
from tests.servers import shared_s3_server, shared_server  # noqa: F401 - a fixture

Start = Callable[..., Run]
ANNOTATION = "ttlafterfinished.dev/"
GRACE_SECONDS = 3
SOON_SECONDS = 20.0


class Archiving(Cluster):
    """Jobs in one namespace, and a folder in which they are archived."""

    def __init__(self, api: Api, namespace: str, folder: Path) -> None:
        super().__init__(api, namespace)
        self.namespace = namespace
        self.folder = folder / "archive"
        self.policy = folder / "policy.yaml"

    def write_policy(self, destination: str = "", grace: int = GRACE_SECONDS, ttl: str = "1s") -> Path:
        destination = destination or f'{{url: "file://{self.folder}"}}'
        self.policy.write_text(
            "apiVersion: ttlafterfinished.dev/v1\nkind: Policy\n"
            f"archives: {{main: {destination}}}\n"
            "rules:\n"
            f"  - {{name: all, match: {{kinds: [jobs]}}, ttl: {ttl}, archive: {{to: main, grace: {grace}s}}}}\n"
        )
        return self.policy

    def finish(self, name: str, **annotations: str) -> Any:
        ours = {f"ttlafterfinished.dev/{key}": value for key, value in annotations.items()}
        self.create_job(name, annotations=ours)
        self.finish_pods_of(name)
        return self.job(name)

    def finish_pod(self, name: str, **metadata: Any) -> Any:
        """Create a Pod that has just finished."""
        spec = {"containers": [{"name": "main", "image": "example.com/work:1"}]}
        self.api.call("POST", self.pods, {"metadata": {"name": name, **metadata}, "spec": spec})
        self.end_pod(name)
        return self.api.get(f"{self.pods}/{name}")

    def pods_of(self, job: str) -> Any:
        selector = f"labelSelector=batch.kubernetes.io/job-name={job}"
        return self.api.call("GET", f"{self.pods}?{selector}")["items"]

    def stored(self, name: str) -> list[tuple[ArchiveKey, Document]]:
        """The stored versions of an object, in the order of their resource versions."""
        found = []
        for path in self.folder.rglob(f"*{SUFFIX}"):
            key = parse_key(str(path.relative_to(self.folder)))
            if key.name == name:
                found.append((key, Document.parse(zstd.decompress(path.read_bytes()))))
        return sorted(found, key=lambda one: int(one[0].resource_version))

    def await_stored(self, name: str, count: int = 1) -> list[tuple[ArchiveKey, Document]]:
        found: list[tuple[ArchiveKey, Document]] = self.api.wait(
            f"{count} stored versions of {name}", lambda: (one := self.stored(name)) and len(one) >= count and one, 90
        )
        return found

    def await_gone(self, name: str, seconds: float = SOON_SECONDS) -> None:
        self.api.wait(f"the deletion of {name}", lambda: self.job(name) is None, seconds)

    def events(self, reason: str) -> list[str]:
        listed = self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [event["message"] for event in listed if event["reason"] == reason]


@pytest.fixture
def s3(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The shared S3 server, with its credentials in the environment."""
    server = shared_s3_server(pytestconfig)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def cluster(api: Api, namespace: str, tmp_path: Path) -> Archiving:
    return Archiving(api, namespace, tmp_path)


def options(policy: Path) -> tuple[str, ...]:
    return ("--policy", str(policy), "--kinds", "jobs")


def test_finished_job_is_archived_with_its_pods_and_deleted_after_the_grace(cluster, start_run):
    run = start_run(*options(cluster.write_policy()))
    job = cluster.finish("done")
    ((key, document),) = cluster.await_stored("done")

    assert document.text == canonical(job | {"apiVersion": "batch/v1", "kind": "Job"})
    assert (key.digest, key.resource_version) == (digest_of(document.text), job["metadata"]["resourceVersion"])
    assert (document.record.rule, document.record.outcome) == ("all", "succeeded")
    (child,) = document.record.children
    assert parse_key(child).kind == "Pod"
    assert (cluster.folder / child).exists()
    assert cluster.job("done") is not None

    archived_at = document.record.archived_at
    cluster.await_gone("done")
    assert datetime.now(UTC) >= archived_at + timedelta(seconds=GRACE_SECONDS)
    assert run.process.poll() is None


def test_job_that_changes_between_archive_and_deletion_is_archived_again(cluster, start_run):
    start_run(*options(cluster.write_policy(grace=4)))
    cluster.finish("changed")
    cluster.await_stored("changed")
    time.sleep(1.5)
    cluster.annotate("changed", note="kept for the record")
    last = cluster.job("changed")

    (_, (key, document)) = cluster.await_stored("changed", 2)
    assert key.resource_version == last["metadata"]["resourceVersion"]
    cluster.await_gone("changed")

    assert datetime.now(UTC) >= document.record.archived_at + timedelta(seconds=4)
    assert cluster.stored("changed")[-1][0].resource_version == last["metadata"]["resourceVersion"]


def test_archive_that_is_away_deletes_nothing_and_grace_counts_from_its_return(cluster, start_run):
    cluster.folder.parent.mkdir(exist_ok=True)
    cluster.folder.write_text("no folder")
    start_run(*options(cluster.write_policy(grace=2)))
    cluster.finish("late")
    time.sleep(6)
    assert cluster.job("late") is not None

    cluster.folder.unlink()
    cluster.folder.mkdir()
    back_at = datetime.now(UTC).replace(microsecond=0)
    cluster.annotate("late", again="1")  # an event; without one, the next sweep finds the object
    ((_, document),) = cluster.await_stored("late")

    assert document.record.archived_at >= back_at
    assert cluster.job("late") is not None
    cluster.await_gone("late")
    assert datetime.now(UTC) >= document.record.archived_at + timedelta(seconds=2)


def test_document_that_is_lost_from_the_archive_keeps_the_job_until_it_is_stored_again(cluster, start_run):
    start_run(*options(cluster.write_policy(grace=5)))
    cluster.finish("lost")
    ((key, _),) = cluster.await_stored("lost")
    (cluster.folder / key.path).unlink()

    ((again, _),) = cluster.await_stored("lost")

    assert again.path == key.path
    cluster.await_gone("lost")
    assert cluster.stored("lost")


def test_damaged_document_keeps_the_job_until_it_is_repaired(cluster, start_run):
    start_run(*options(cluster.write_policy(grace=4)))
    cluster.finish("damaged")
    ((key, document),) = cluster.await_stored("damaged")
    path = cluster.folder / key.path
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-20])

    cluster.await_gone("damaged", 40)

    assert cluster.stored("damaged")[0][1].text == document.text


def test_document_with_a_time_in_the_future_keeps_the_job_with_a_warning_until_it_is_stored_again(
    cluster, start_run, server
):
    policy = cluster.write_policy(grace=15)
    run = start_run(*options(policy))
    cluster.finish("ahead")
    ((key, document),) = cluster.await_stored("ahead")
    run.stop()
    old = document.record.model_copy(update={"archived_at": document.record.archived_at - timedelta(hours=2)})
    asyncio.run(open_archive("main", f"file://{cluster.folder}").put(key, replace(document, record=old), replaces=True))
    path, far = cluster.folder / key.path, datetime(2099, 1, 1, tzinfo=UTC).timestamp()
    os.utime(path, (far, far))

    place = ("-n", cluster.namespace, "--policy", str(policy))
    explained = " ".join(run_command(server.kubeconfig, "explain", "job/ahead", *place).stdout.split())
    assert "kept (not-archived)" in explained
    assert f"archive main: file://{path}: the time in the archive: expected an instant until now" in explained
    assert "got 2099-01-01T00:00:01Z; correct the clock" in explained
    start_run(*options(policy))
    (message, *_) = cluster.api.wait("the Event", lambda: cluster.events("NotArchived"), 90)
    assert "got 2099-01-01T00:00:01Z; correct the clock" in message
    listed = cluster.api.call("GET", f"/api/v1/namespaces/{cluster.namespace}/events")["items"]
    assert {event["type"] for event in listed if event["reason"] == "NotArchived"} == {"Warning"}
    cluster.await_gone("ahead", 60)

    assert path.stat().st_mtime < far
    assert cluster.stored("ahead")[0][1].text == document.text


def test_job_that_opts_out_is_deleted_without_an_archive(cluster, start_run):
    cluster.finish("unreadable", archive="nowhere")
    start_run(*options(cluster.write_policy(grace=60)))  # its sweep at start writes the Event
    cluster.finish("opted-out", archive="false")

    cluster.await_gone("opted-out")
    assert cluster.stored("opted-out") == []
    assert cluster.job("unreadable") is not None
    message = cluster.api.wait("the Event", lambda: cluster.events("InvalidArchive"), 90)[0]
    assert "expected true or false, or one of the archives main, got 'nowhere'" in message


class Archiver(http.server.BaseHTTPRequestHandler):
    """A foreign archiver: it keeps what it is sent, in memory."""

    held: dict[tuple[str, str], dict[str, Any]]
    refuses: bool

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        version = body["ref"]["uid"], body["resourceVersion"]
        if self.server.refuses:  # type: ignore[attr-defined]
            self.send_response(503)
            self.end_headers()
            return
        held = self.server.held  # type: ignore[attr-defined]
        if body["object"] is not None and version not in held:
            assert digest_of(canonical(body["object"])) == body["digest"]
            at = datetime.now(UTC).isoformat()
            held[version] = {name: body[name] for name in ("ref", "resourceVersion", "digest")} | {"archivedAt": at}
        if version not in held:
            self.send_response(404)
            self.end_headers()
            return
        self.send_response(200)
        headers = {"ce-specversion": "1.0", "ce-type": "dev.ttlafterfinished.archive.done", "ce-source": "test"}
        for name, value in {**headers, "ce-id": str(uuid.uuid4()), "content-type": "application/json"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(json.dumps(held[version]).encode())

    def log_message(self, *_: Any) -> None:
        """No log."""


@pytest.fixture
def archiver() -> Iterator[Any]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Archiver)
    server.held, server.refuses = {}, False  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_foreign_archiver_is_asked_before_the_deletion(cluster, start_run, archiver):
    webhook = f'{{webhook: "http://127.0.0.1:{archiver.server_port}/"}}'
    start_run(*options(cluster.write_policy(webhook, grace=2)))
    job = cluster.finish("elsewhere")

    version = job["metadata"]["uid"], job["metadata"]["resourceVersion"]
    cluster.api.wait("the request", lambda: version in archiver.held)
    cluster.await_gone("elsewhere")

    assert datetime.now(UTC) >= parse_instant(archiver.held[version]["archivedAt"]) + timedelta(seconds=2)


def test_foreign_archiver_that_forgets_keeps_the_job(cluster, start_run, archiver):
    webhook = f'{{webhook: "http://127.0.0.1:{archiver.server_port}/"}}'
    start_run(*options(cluster.write_policy(webhook, grace=3)))
    job = cluster.finish("forgotten")
    version = job["metadata"]["uid"], job["metadata"]["resourceVersion"]
    cluster.api.wait("the request", lambda: version in archiver.held)
    archiver.refuses = True
    time.sleep(6)

    assert cluster.job("forgotten") is not None
    archiver.refuses = False
    cluster.annotate("forgotten", note="event")
    cluster.await_gone("forgotten", 30)


@pytest.mark.smoke
def test_job_is_deleted_only_after_the_acknowledgement_of_a_bucket(cluster, start_run, s3):
    """The Job is due at once. The bucket does not exist at first, so the S3 server refuses each put."""
    bucket = cluster.namespace
    url = s3.url("present", "jobs").replace("s3://present/", f"s3://{bucket}/")
    run = start_run(*options(cluster.write_policy(f'{{url: "{url}"}}', grace=1, ttl="0s")), "-v")
    job = cluster.finish("done")
    # The first sweep keeps it, or, if it finished after that, the event of its finish sets the timer of its archiving.
    cluster.api.wait(
        "the decision", lambda: re.search(r'(kept|timer-set) .*/done".*reason=(not-archived|archive-unread)', run.text)
    )
    cluster.api.wait("the refusal", lambda: "NoSuchBucket" in run.text)
    assert cluster.job("done") is not None

    (s3.root / bucket).mkdir()
    cluster.folder = s3.root / bucket / "jobs"
    cluster.annotate("done", again="1")  # an event; without one, the next sweep finds the object
    last, deleted_at = cluster.await_deletion(job)
    key, document = cluster.stored("done")[-1]
    assert key.uid == last["metadata"]["uid"]
    assert [document.obj["metadata"]["annotations"], document.obj["status"]] == [
        last["metadata"]["annotations"],
        last["status"],
    ]
    assert deleted_at >= document.record.archived_at + timedelta(seconds=1)


def test_job_is_archived_in_a_bucket_whose_server_is_killed_meanwhile(cluster, start_run, tmp_path, monkeypatch):
    """From the finish to the deletion, with the children, over a real S3 server."""
    with s3_server(required_s3_program(), tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        start_run(*options(cluster.write_policy(f'{{url: "{server.url("kept", "jobs")}"}}', grace=2)))
        cluster.folder = server.root / "kept" / "jobs"
        job = cluster.finish("first")
        ((key, document),) = cluster.await_stored("first")
        assert document.text == canonical(job | {"apiVersion": "batch/v1", "kind": "Job"})
        assert key.resource_version == job["metadata"]["resourceVersion"]
        assert all((cluster.folder / child).exists() for child in document.record.children)
        cluster.await_gone("first")

        server.kill()
        cluster.finish("second")
        time.sleep(5)
        assert cluster.job("second") is not None
        server.start()
        cluster.await_stored("second")
        cluster.await_gone("second")


def test_metrics_and_options_of_the_settings_are_read(cluster, start_run, monkeypatch):
    monkeypatch.setitem(os.environ, "TTL_CLUSTER", "west")
    start_run(*options(cluster.write_policy()))
    cluster.finish("named")

    ((key, document),) = cluster.await_stored("named")

    uid = cluster.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    assert not_none(key).cluster == f"west.{uid[:8]}"
    assert document.record.cluster_id == uid


def test_owner_waits_until_the_pods_that_its_deletion_takes_along_are_archived(cluster, start_run, s3):
    """Rule 1 archives Pods, rule 2 deletes Jobs. There is no bucket at first.

    A Pod may own Pods, too, which its kind rule does not say: so does the driver of Spark.
    """
    bucket = cluster.namespace
    url = s3.url("present", "pods").replace("s3://present/", f"s3://{bucket}/")
    cluster.policy.write_text(
        "apiVersion: ttlafterfinished.dev/v1\nkind: Policy\n"
        f'archives: {{main: {{url: "{url}"}}}}\n'
        "rules:\n"
        "  - {name: pods, match: {kinds: [pods]}, archive: {to: main, grace: 3s}}\n"
        "  - {name: jobs, match: {kinds: [jobs]}, ttl: 1s}\n"
    )
    run = start_run("--policy", str(cluster.policy), "--kinds", "jobs,pods", "--sweep-interval", "5s", "-v")
    cluster.finish("taken")
    (pod,) = cluster.pods_of("taken")
    driver = cluster.finish_pod("driver", annotations={ANNOTATION + "ttl": "1s", ANNOTATION + "archive": "false"})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver["metadata"]["uid"]}
    executor = cluster.finish_pod("executor", ownerReferences=[owner])
    cluster.api.wait(
        "the decision", lambda: re.search(r'kept .*/taken".*reason=child(-not-archived|ren-unread)', run.text)
    )
    cluster.api.wait(
        "the other decision", lambda: re.search(r'kept .*/driver".*reason=child(-not-archived|ren-unread)', run.text)
    )
    cluster.api.wait("an attempt to archive", lambda: "NoSuchBucket" in run.text)
    assert cluster.job("taken") is not None
    assert cluster.pods_of("taken") == [pod]

    (s3.root / bucket).mkdir()
    cluster.folder = s3.root / bucket / "pods"
    cluster.await_gone("taken", 60)
    cluster.api.wait("the deletion of the driver", lambda: cluster.api.get(f"{cluster.pods}/driver") is None, 60)
    for one in (pod, executor):
        ((key, document),) = cluster.stored(one["metadata"]["name"])
        assert key.uid == one["metadata"]["uid"]
        assert datetime.now(UTC) >= document.record.archived_at + timedelta(seconds=3)


def test_hold_on_a_pod_keeps_its_job(cluster, start_run):
    run = start_run(*options(cluster.write_policy(grace=0, ttl="5s")), "--sweep-interval", "5s", "-v")
    cluster.finish("held")
    (pod,) = cluster.pods_of("held")
    path = f"{cluster.pods}/{pod['metadata']['name']}"
    cluster.api.call("PATCH", path, {"metadata": {"annotations": {"ttlafterfinished.dev/hold": "evidence"}}})
    cluster.api.wait("the decision", lambda: re.search(r'kept .*/held".*reason=child-held', run.text), 60)
    assert cluster.job("held") is not None

    cluster.api.call("PATCH", path, {"metadata": {"annotations": {"ttlafterfinished.dev/hold": None}}})
    cluster.await_gone("held", 60)
