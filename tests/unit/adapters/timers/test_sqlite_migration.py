"""A timer file of version 1, as commit 15253f1 wrote it: nothing of it is lost on the way to version 2."""

import logging
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.timers.sqlite import migration
from shared.adapters.timers.sqlite.file import TimerFile
from shared.adapters.timers.sqlite.schema import SCHEMA_VERSION
from tests.builders import ROOT
from tests.volumes import mounted

FIXTURE = ROOT / "tests" / "fixtures" / "timers" / "version-1.db"
INCREMENTAL = 2


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT * FROM timers ORDER BY id").fetchall()


def pragma(path: Path, name: str) -> object:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"PRAGMA {name}").fetchone()[0]


def open_and_close(path: Path) -> None:
    TimerFile(path).close()


def names_beside(path: Path) -> set[str]:
    return {one.name for one in path.parent.iterdir()} - {path.name, f"{path.name}.lock"}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "timers.db"
    shutil.copy(FIXTURE, path)
    return path


@pytest.fixture
def large(old: Path) -> Path:
    """A file of version 1 that takes more than a MiB."""
    with closing(sqlite3.connect(old, isolation_level=None)) as db:
        db.execute(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5000) INSERT INTO timers"
            " (uid, purpose, due_us, fire_us, ref) SELECT 'more-' || n, 'expire', n, n, '{}' || hex(zeroblob(60))"
            " FROM n"
        )
    return old


def test_fixture_is_of_version_1_with_all_that_a_timer_may_have() -> None:
    with closing(sqlite3.connect(f"file:{FIXTURE}?mode=ro&immutable=1", uri=True)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("PRAGMA auto_vacuum").fetchone() == (0,)
        purposes, attempts, generation = db.execute(
            "SELECT count(DISTINCT purpose), max(attempts), max(generation) FROM timers"
        ).fetchone()
    assert (purposes, attempts, generation) == (3, 3, 4)  # of the purposes of its time


def test_migration_keeps_every_row(old: Path) -> None:
    before = rows_of(old)
    open_and_close(old)
    assert rows_of(old) == before
    assert pragma(old, "user_version") == SCHEMA_VERSION
    assert pragma(old, "auto_vacuum") == INCREMENTAL
    assert pragma(old, "integrity_check") == "ok"
    assert stat.S_IMODE(old.stat().st_mode) == 0o600


def test_migration_keeps_rows_that_are_in_the_log_only(old: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    killed.mkdir()
    with closing(sqlite3.connect(old, isolation_level=None)) as db:
        db.execute("UPDATE timers SET attempts = 7 WHERE uid = 'uid-5'")
        for ending in ("", "-wal"):  # as after kill -9
            shutil.copy(f"{old}{ending}", killed / f"timers.db{ending}")
    before = rows_of(old)
    open_and_close(killed / "timers.db")
    assert pragma(killed / "timers.db", "user_version") == SCHEMA_VERSION
    assert rows_of(killed / "timers.db") == before


def test_migration_says_how_long_it_may_take(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ttl"):
        open_and_close(old)
    first, last = caplog.records
    assert (first.getMessage(), last.getMessage()) == (
        "migrating the timer file before the start",
        "timer file migrated",
    )
    assert first.fields["seconds_max"] == 1  # type: ignore[attr-defined]


def test_file_of_the_present_version_is_not_written_again(old: Path) -> None:
    open_and_close(old)
    before = old.stat().st_ino
    open_and_close(old)
    assert old.stat().st_ino == before


@pytest.mark.parametrize("step", ["_check_space", "_check_copy", "_replace", "_sync", "prepare"])
def test_migration_survives_kill_9(old: Path, step: str) -> None:
    before = rows_of(old)
    module = "file" if step == "prepare" else "migration"
    code = (
        f"import os, sys; from pathlib import Path; from shared.adapters.timers.sqlite import file, migration\n"
        f"{module}.{step} = lambda *_: os.kill(os.getpid(), 9)\n"
        f"file.TimerFile(Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(old)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    open_and_close(old)
    assert rows_of(old) == before
    assert pragma(old, "user_version") == SCHEMA_VERSION
    assert names_beside(old) == set()


def test_file_that_another_process_reads_is_used_as_it_is(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = rows_of(old)
    with closing(sqlite3.connect(old)) as reader:
        reader.execute("SELECT * FROM timers").fetchone()
        open_and_close(old)
        assert "does not shrink" in caplog.text
    assert pragma(old, "user_version") == 1
    open_and_close(old)
    assert pragma(old, "user_version") == SCHEMA_VERSION
    assert rows_of(old) == before


@pytest.mark.verify  # it mounts a volume
@pytest.mark.parametrize("is_noticed_before", [True, False])
def test_file_on_a_full_volume_is_used_as_it_is(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_noticed_before: bool
) -> None:
    if not is_noticed_before:  # another program fills the volume during the migration
        monkeypatch.setattr(migration, "_check_space", lambda *_: None)
    with mounted(tmp_path / "volume", mebibytes=4) as volume:
        path = volume / "timers.db"
        shutil.copy(large, path)
        with (volume / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while os.statvfs(volume).f_bavail > 100:
                ballast.write(bytes(4096))
        before = rows_of(path)
        open_and_close(path)
        assert pragma(path, "user_version") == 1
        assert rows_of(path) == before
        assert names_beside(path) == {"ballast"}
        (volume / "ballast").unlink()
        open_and_close(path)
        assert pragma(path, "user_version") == SCHEMA_VERSION
        assert rows_of(path) == before
