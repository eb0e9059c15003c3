"""kill -9 of `archive`, again and again: what it acknowledged is readable, and no document is torn.

One process after the other archives Jobs with their Pods into one folder, and is killed at a random instant. The test
is the Broker: it delivers the timer of each Job again until the answer is `object.archived`.

    CRASH_ROUNDS=500 pytest tests/crash    more kills
    CRASH_SEED=7 pytest tests/crash        the random numbers of an earlier run
"""

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from backports import zstd

from shared.adapters.clock import SystemClock
from shared.adapters.events.cloudevents import event_of, to_http
from shared.core.archive.document import Document, canonical
from shared.core.archive.layout import SUFFIX, ArchiveKey, parse_key
from shared.core.values.objects import ref_of
from shared.devserver.apiserver.app import EmbeddedApiServer, serve, write_kubeconfig
from shared.devserver.apiserver.resources import JOBS, NAMESPACES, PODS
from shared.devserver.apiserver.store import Store
from shared.devserver.ports import free_port
from shared.messages import ObjectArchived, Purpose, Timer
from shared.safeguards.state_schema import HOME
from tests.builders import FRONT, ROOT, ended, having, job, namespace, not_none, pod

pytestmark = pytest.mark.anyio

ROUNDS = int(os.getenv("CRASH_ROUNDS", "8"))
SEED = int(os.getenv("CRASH_SEED", str(random.randrange(10**6))))
OBJECTS = 40
AT_ONCE = 8

now = SystemClock().now


@dataclass
class Archive:
    """The process that is killed; the next one takes over its port and its folder."""

    folder: Path
    policy: Path
    kubeconfig: Path
    log: Path
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        options = ["functions_framework.aio:app", "--http", FRONT, "--lifespan", "on", "--no-access-log"]
        environment = {
            "PATH": os.defpath,
            "FUNCTION_TARGET": "archive",
            "FUNCTION_SOURCE": "functions/archive.py",
            "KUBECONFIG": str(self.kubeconfig),
            "TTL_POLICY": str(self.policy),
        }
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "uvicorn", *options, "--port", str(self.port)),
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )

    async def kill(self) -> None:
        process = not_none(self.process)
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()

    async def post(self, session: aiohttp.ClientSession, timer: Timer) -> ObjectArchived | None:
        """Deliver a timer; None if the process died, was not there yet, or did not archive."""
        headers, body = to_http(event_of(timer, source="test"))
        try:
            async with session.post(f"http://127.0.0.1:{self.port}/", data=body, headers=headers) as response:
                answer = await response.read()
                if response.headers.get("ce-type") != ObjectArchived.type:
                    return None
                return ObjectArchived.model_validate_json(answer)
        except (aiohttp.ClientError, OSError):
            return None

    def documents(self) -> dict[ArchiveKey, Document]:
        """All documents; a torn one fails the test."""
        found = {}
        for path in self.folder.rglob(f"*{SUFFIX}"):
            key = parse_key(str(path.relative_to(self.folder)))
            document = Document.parse(zstd.decompress(path.read_bytes()))
            assert document.digest == key.digest, path
            found[key] = document
        return found


def make_store() -> tuple[Store, list[dict[str, Any]]]:
    """Finished Jobs, each with two Pods."""
    store, jobs = Store(now), []
    for name in ("ci", HOME):  # the installation has the shared state, which has the id of the archive
        store.restore(NAMESPACES, namespace(name))
    for number in range(OBJECTS):
        name = f"job-{number}"
        done = store.restore(JOBS, job(complete=now().replace(microsecond=0), name=name, uid=name))
        jobs.append(done)
        for part in range(2):
            child = pod(
                containers=(ended(at=now().replace(microsecond=0)),), name=f"{name}-{part}", uid=f"{name}-{part}"
            )
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
            store.restore(PODS, having(child, "metadata.ownerReferences", [owner]))
    return store, jobs


class Broker:
    """Delivers the timers of all Jobs until each has been acknowledged after the last kill."""

    def __init__(self, archive: Archive, store: Store, jobs: list[dict[str, Any]], chance: random.Random) -> None:
        self.archive, self.store, self.chance = archive, store, chance
        self.left = {one["metadata"]["uid"]: one for one in jobs}
        self.acknowledged: dict[str, ObjectArchived] = {}
        self.kills_left = ROUNDS

    async def deliver(self, session: aiohttp.ClientSession) -> None:
        while self.left:
            ref = ref_of(self.chance.choice(list(self.left.values())))
            answer = await self.archive.post(session, Timer(ref=ref, purpose=Purpose.ARCHIVE, due_at=now()))
            if answer is None:
                await asyncio.sleep(0.01)
                continue
            self.acknowledged[ref.uid] = answer
            if not self.kills_left:
                self.left.pop(ref.uid, None)

    async def kill(self) -> None:
        """Kill the process once it works, after a random while; change some Jobs; start the next process."""
        while self.kills_left:
            before = len(self.acknowledged)
            for _ in range(200):
                if len(self.acknowledged) > before or self.chance.random() < 0.01:
                    break
                await asyncio.sleep(0.02)
            await asyncio.sleep(self.chance.random() * 0.2)
            await self.archive.kill()
            self.archive.documents()
            for uid in [one for one in self.acknowledged if self.chance.random() < 0.5]:
                changed = having(_read(self.store, uid), "metadata.labels.touched", str(self.chance.random()))
                self.store.restore(JOBS, changed)
                del self.acknowledged[uid]
            await self.archive.start()
            self.kills_left -= 1


@pytest.mark.timeout(300)
async def test_archive_survives_kills(tmp_path):
    print(f"CRASH_SEED={SEED}")
    store, jobs = make_store()
    folder, policy = tmp_path / "archive", tmp_path / "policy.yaml"
    policy.write_text(
        f'archives: {{main: {{url: "file://{folder}"}}}}\n'
        "rules: [{name: all, match: {kinds: [jobs]}, ttl: 1h, archive: {to: main}}]\n"
    )
    async with serve(EmbeddedApiServer(store)) as url, aiohttp.ClientSession() as session:
        archive = Archive(folder, policy, write_kubeconfig(tmp_path / "kubeconfig", url), tmp_path / "log")
        broker = Broker(archive, store, jobs, random.Random(SEED))
        await archive.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(broker.kill())
            for _ in range(AT_ONCE):
                group.create_task(broker.deliver(session))
        await archive.kill()

    documents = archive.documents()
    by_version = {(key.uid, key.resource_version): (key, document) for key, document in documents.items()}
    assert set(broker.acknowledged) == {one["metadata"]["uid"] for one in jobs}
    for uid, answer in broker.acknowledged.items():
        key, document = by_version[uid, answer.resource_version]
        assert key.digest == answer.digest
        assert document.text == canonical(_read(store, uid))
    roots = [document for key, document in documents.items() if key.kind == "Job"]
    assert len(roots) >= OBJECTS
    for document in roots:
        assert len(document.record.children) == 2
        assert all(parse_key(child) in documents for child in document.record.children)


def _read(store: Store, name: str) -> dict[str, Any]:
    found: dict[str, Any] = store.get(JOBS, "ci", name)
    return found
