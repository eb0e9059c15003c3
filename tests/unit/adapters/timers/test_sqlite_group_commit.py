"""The group commit: the results of deliveries gather for a moment, and share a transaction."""

import asyncio
import sqlite3

import pytest

from shared.adapters.timers.sqlite import group_commit
from shared.adapters.timers.sqlite.file import TimerFile
from shared.adapters.timers.sqlite.group_commit import GroupCommit

pytestmark = pytest.mark.anyio


def _nothing(_: sqlite3.Connection) -> int:
    return 0


async def _commits(tmp_path, monkeypatch, *, shrinks: bool) -> int:
    """How many transactions three writes take that come one after the other."""
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 0.5)
    file = TimerFile(tmp_path / "timers.db")
    statements: list[str] = []
    file.writer.set_trace_callback(statements.append)
    commits = GroupCommit(file.writer, file.health, lambda _: False)
    try:
        written = []
        for _ in range(3):
            written.append(commits.submit(_nothing, shrinks=shrinks))
            await asyncio.sleep(0.02)
        await asyncio.gather(*written)
    finally:
        commits.close()
        file.close()
    return statements.count("COMMIT")


async def test_results_of_deliveries_that_follow_one_another_share_a_commit(tmp_path, monkeypatch):
    assert await _commits(tmp_path, monkeypatch, shrinks=True) == 1


async def test_new_timer_is_committed_at_once(tmp_path, monkeypatch):
    assert await _commits(tmp_path, monkeypatch, shrinks=False) > 1
