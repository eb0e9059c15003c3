"""`pending --watch`: a line for each change of the pending timers."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from shared.cli.main import main
from shared.cli.timers.ls import PendingChanges, TimerChange, _Listed, _TimerTable
from tests.builders import ROOT
from tests.unit.cli.timers.test_timers_commands import create, engine_on, timer


def found(changes, *timers):
    return [(change, one.ref.uid) for change, one in changes.find(timers)]


def test_changes_name_each_timer_that_is_new_moved_retried_or_gone():
    changes = PendingChanges()
    assert found(changes, timer("a"), timer("b"), timer("c")) == [(TimerChange.PENDING, uid) for uid in "abc"]
    assert found(changes, timer("a"), timer("b"), timer("c")) == []
    later = [timer("a", 7_200), timer("b", attempts=1), timer("d")]
    assert found(changes, *later) == [
        (TimerChange.MOVED, "a"),
        (TimerChange.RETRIED, "b"),
        (TimerChange.PENDING, "d"),
        (TimerChange.GONE, "c"),
    ]


def test_second_timer_of_one_object_is_one_change():
    """Cloud Tasks keeps the earlier timer."""
    changes, earlier, later = PendingChanges(), timer("a", 60), timer("a", 7_200)
    assert found(changes, earlier) == [(TimerChange.PENDING, "a")]
    assert found(changes, earlier, later) == [(TimerChange.MOVED, "a")]
    assert found(changes, later, earlier) == []
    assert found(changes, timer("a", 60, attempts=1), later) == [(TimerChange.RETRIED, "a")]
    assert found(changes, later) == []
    assert found(changes) == [(TimerChange.GONE, "a")]


def test_list_of_several_timers_of_one_object_names_no_smaller_total(capsys):
    """Cloud Tasks counts the timers of one object once."""
    listed = _Listed()
    listed.add([timer("a", 60), timer("a", 7_200)])
    _TimerTable().end(listed, 1)
    assert capsys.readouterr().err.startswith("2 timers: 2 expire;")


def test_timer_on_two_pages_is_one_change():
    assert found(PendingChanges(), timer("a"), timer("a", 60)) == [(TimerChange.PENDING, "a")]


def test_pending_lists_as_timers_ls_does(tmp_path: Path):
    create(tmp_path / "timers.db", [timer("a"), timer("b")])
    words = ["--timers", f"sqlite:{tmp_path}/timers.db", "-o", "json"]
    listed = [CliRunner().invoke(main, [*command, *words]).stdout for command in (["pending"], ["timers", "ls"])]
    assert listed[0] == listed[1]
    assert json.loads(listed[0])["listed"] == 2


def test_watch_prints_what_a_running_process_changes(tmp_path: Path):
    path = tmp_path / "timers.db"
    create(path, [timer("a"), timer("b")])

    async def work() -> list[dict]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from shared.cli.main import main; main()"),
            *("pending", "-w", "--interval", "1", "-o", "json", "--timers", f"sqlite:{path}"),
            env={"PATH": os.defpath, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        engine = engine_on(path)
        lines = [await process.stdout.readline() for _ in range(2)]
        await engine.set([timer("c"), timer("a", 60)])
        lines += [await process.stdout.readline() for _ in range(2)]
        process.terminate()
        assert await process.wait() == 143
        await engine.close()
        return [json.loads(line) for line in lines]

    async def limited() -> list[dict]:
        async with asyncio.timeout(30):
            return await work()

    lines = asyncio.run(limited())
    assert [(one["change"], one["ref"]["uid"]) for one in lines[:2]] == [("pending", "a"), ("pending", "b")]
    assert {(one["change"], one["ref"]["uid"]) for one in lines[2:]} == {("pending", "c"), ("moved", "a")}
