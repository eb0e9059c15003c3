"""The group commit: the results of deliveries gather for a moment, and share a transaction."""

import asyncio
import sqlite3
import threading

import pytest

from shared.adapters.timers.sqlite import group_commit
from shared.adapters.timers.sqlite.file import TimerFile
from shared.adapters.timers.sqlite.group_commit import GroupCommit

pytestmark = pytest.mark.anyio


class Moment:
    """The time in which results gather; it is over when the test says so."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Event(), threading.Event()

    def sleep(self, _seconds: float) -> None:
        self.begun.set()
        self.over.wait()


@pytest.fixture
def moment(monkeypatch):
    moment = Moment()
    monkeypatch.setattr(group_commit, "time", moment)
    return moment


@pytest.fixture
def file(tmp_path):
    file = TimerFile(tmp_path / "timers.db")
    yield file
    file.close()


@pytest.fixture
def commits(file, moment):
    commits = GroupCommit(file.writer, file.health, lambda _: False)
    yield commits
    moment.over.set()
    commits.close()


@pytest.fixture
def statements(file):
    statements: list[str] = []
    file.writer.set_trace_callback(statements.append)
    return statements


def _nothing(_: sqlite3.Connection) -> int:
    return 0


async def test_results_of_deliveries_that_follow_one_another_share_a_commit(commits, moment, statements):
    first = commits.submit(_nothing, shrinks=True)
    await asyncio.to_thread(moment.begun.wait)
    later = [commits.submit(_nothing, shrinks=True) for _ in range(2)]
    moment.over.set()
    await asyncio.gather(first, *later)
    assert statements.count("COMMIT") == 1


async def test_new_timer_is_committed_at_once(commits, moment, statements):
    for _ in range(3):
        await commits.submit(_nothing)
    assert statements.count("COMMIT") == 3
    assert not moment.begun.is_set()
