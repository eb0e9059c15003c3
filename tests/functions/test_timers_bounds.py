"""What a stranger can do to the timers: each event is refused or bounded, with the real engine over a file."""

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from shared.adapters.config.settings import Settings
from shared.adapters.config.timers_address import SqliteAddress
from shared.adapters.timers.sqlite import file as timer_file
from shared.bootstrap.timer_engine import build_timers
from shared.messages import TIMERS_MAX
from tests.builders import ago, not_none, stamp
from tests.functions.wire import SET, binary, timer

pytestmark = pytest.mark.anyio

MEBIBYTE = 1024 * 1024


@asynccontextmanager
async def sqlite_timers(server, config, tmp_path):
    """The function over a file. It delivers nothing, as when the Broker is away."""
    settings = Settings(TTL_TIMERS=SqliteAddress(tmp_path / "timers.db"))
    engine = build_timers(settings, config.clock, config.publisher)
    server.use(replace(config, settings=settings, timers=engine))
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
async def engine(server, config, tmp_path):
    async with sqlite_timers(server, config, tmp_path) as timers:
        yield timers


async def post(server, *timers):
    return await server.post("timers", *binary(SET, {"timers": list(timers)}))


async def test_timer_in_the_year_9999_is_left_to_the_sweep(server, engine):
    answer = await post(server, timer(due_at="9999-12-31T23:59:59Z"))
    assert answer.status == 204
    assert await engine.pending() == 0


async def test_timer_in_the_year_9999_leaves_the_pending_one(server, engine):
    assert (await post(server, timer())).status == 204
    assert (await post(server, timer(due_at="9999-12-31T23:59:59Z"))).status == 204
    assert await engine.pending() == 1


@pytest.mark.parametrize("due_at", ["-0001-01-01T00:00:00Z", "10000-01-01T00:00:00Z", -(10**30), 10**30], ids=str)
async def test_timer_outside_the_calendar_is_refused_and_not_stored(server, engine, due_at):
    answer = await post(server, timer(uid="uid-2"), timer(due_at=due_at))
    assert answer.status == 422
    assert "data.timers.1.dueAt" in answer.text
    assert await engine.pending() == 0


async def test_negative_time_is_an_overdue_timer(server, engine):
    """A number counts seconds since 1970, so this is a minute before: due at once, as any time in the past."""
    assert (await post(server, timer(due_at=-60))).status == 204
    due_at = not_none(await engine.next_due())
    assert stamp(due_at) == "1969-12-31T23:59:00Z"


@pytest.mark.parametrize("field", ["apiVersion", "kind", "namespace", "name", "uid"])
async def test_ref_of_a_mebibyte_is_refused_in_one_short_line(server, engine, field):
    answer = await post(server, timer(**{field: "x" * MEBIBYTE}))
    assert answer.status == 422
    assert f"{field}: expected at most 500 characters, got {MEBIBYTE}" in answer.text
    assert len(answer.text) < 500
    assert await engine.pending() == 0


@pytest.mark.parametrize("field", ["namespace", "name", "uid"])
async def test_longest_names_of_the_api_server_are_stored(server, engine, field):
    assert (await post(server, timer(**{field: "x" * 253}))).status == 204
    assert await engine.pending() == 1


async def test_flood_for_objects_that_do_not_exist_ends_with_a_full_file(server, config, tmp_path, monkeypatch):
    """A stranger posts page after page; a file of 2 MiB stands for one of 512 MiB."""
    monkeypatch.setattr(timer_file, "FILE_BYTES_MAX", 2 * MEBIBYTE)
    async with sqlite_timers(server, config, tmp_path) as engine:
        for page in range(1_000_000 // TIMERS_MAX):
            flood = [timer(uid=f"stranger-{page}-{number}") for number in range(TIMERS_MAX)]
            answer = await post(server, *flood)
            if answer.status != 204:
                break
        assert answer.status == 503
        assert "the timer file is full" in answer.text
        assert int(answer.headers["retry-after"]) >= 1
        stored = await engine.pending()
        assert stored == page * TIMERS_MAX
        assert (tmp_path / "timers.db").stat().st_size <= 2 * MEBIBYTE
        # A timer that is stored can still be set again.
        assert (await post(server, timer(uid="stranger-0-0", due_at=stamp(ago(-60))))).status == 204
        assert await engine.pending() == stored
