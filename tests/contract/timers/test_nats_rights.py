"""The rights that docs/explanation/timers.md gives to the NATS user of `timers`: the engine works with them."""

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from shared.adapters.config.settings import read_settings
from shared.adapters.timers.nats.connection import NatsConnection
from shared.bootstrap.timer_engine import build_timers
from shared.devserver.real_servers import find_assets
from shared.messages import Purpose, Timer
from shared.ports import DurableTimers
from tests.builders import ROOT
from tests.contract.timers.worlds import ShiftedClock
from tests.fakes import FakePublisher

SECONDS = 15


def documented_rights() -> dict[str, list[str]]:
    """The subjects of the table, by what they allow."""
    rights: dict[str, list[str]] = {"publish": [], "subscribe": []}
    page = (ROOT / "docs/explanation/timers.md").read_text()
    for verb, subjects in re.findall(r"^\| (publish|subscribe)\b[^|]*\| (.*) \|$", page, re.MULTILINE):
        rights[verb] += re.findall(r"`([^`]+)`", subjects)
    return rights


class LimitedServer:
    """A nats-server whose clients have the documented rights only.

    Attributes:
        url: Its address.
        log: Its log.
    """

    def __init__(self, folder: Path, binary: Path) -> None:
        user = {"user": "timers", "password": "-", "permissions": documented_rights()}
        config = {
            "listen": "127.0.0.1:-1",
            "ports_file_dir": str(folder),
            "jetstream": {"store_dir": str(folder / "store")},
            "accounts": {"timers": {"jetstream": "enabled", "users": [user]}},
            "no_auth_user": "timers",
        }
        (folder / "nats.conf").write_text(json.dumps(config))
        self.log = folder / "nats.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([binary, "-c", folder / "nats.conf"], stdout=log, stderr=log)
        ports = folder / f"{binary.name}_{self._process.pid}.ports"
        deadline = time.monotonic() + SECONDS
        while not ports.exists() or not ports.read_text().strip():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        self.url: str = json.loads(ports.read_text())["nats"][0]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[LimitedServer]:
    assets = find_assets()
    if assets is None or not (assets / "nats-server").exists():
        if os.getenv("CI"):
            pytest.fail("no nats-server in $KUBEBUILDER_ASSETS")
        pytest.skip("no nats-server in $KUBEBUILDER_ASSETS")
    server = LimitedServer(tmp_path, assets / "nats-server")
    try:
        yield server
    finally:
        server.stop()


def timer(clock: ShiftedClock, uid: str, seconds: float) -> Timer:
    ref = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "ci", "name": uid, "uid": uid}
    due_at = clock.now() + timedelta(seconds=seconds)
    return Timer.model_validate({"ref": ref, "purpose": Purpose.EXPIRE, "dueAt": due_at.isoformat()})


async def use(timers: DurableTimers, clock: ShiftedClock, publisher: FakePublisher) -> None:
    """Call all methods of the contract, until one timer has fired and one is left."""
    later, soon = (timer(clock, uid, seconds) for uid, seconds in (("a", 3600), ("c", 0.5)))
    await timers.set([later, soon])
    await timers.set([later])
    while not publisher.published or await timers.pending() > 1:
        await asyncio.sleep(0.05)
    assert [one.ref.uid for one in publisher.published if isinstance(one, Timer)] == ["c"]
    assert [one.ref.uid for one in (await timers.page()).timers] == ["a"]
    await timers.next_due()
    connection: NatsConnection = timers._connection  # type: ignore[attr-defined]
    await connection.delete(999)  # as after a search for stuck timers


@pytest.mark.anyio
async def test_engine_works_with_the_documented_rights_and_needs_no_other(limited: LimitedServer) -> None:
    clock, publisher = ShiftedClock(), FakePublisher()
    settings = read_settings(environment={"TTL_TIMERS": limited.url})
    try:
        timers = build_timers(settings, clock, publisher)
    except NotImplementedError:
        pytest.skip("this version has no timers in NATS")
    running = asyncio.create_task(timers.run())
    try:
        async with asyncio.timeout(SECONDS):
            await use(timers, clock, publisher)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert "Violation" not in limited.log.read_text()
