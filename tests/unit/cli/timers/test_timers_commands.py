"""`timers ls | export | import | backup` on timer files."""

import asyncio
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shared.adapters.timers.sqlite.engine import SqliteTimers
from shared.cli.main import main
from shared.cli.timers.move import first_line, last_line, timer_line
from shared.cli.timers.place import make_path_of_run
from shared.core.values.objects import ObjectRef
from shared.errors import TryLaterError
from shared.messages import Message, Purpose, Timer
from shared.ports import DurableTimers
from tests.builders import ROOT
from tests.fakes import FakeClock

NOW = datetime(2026, 3, 14, 15, 9, 26, 535_897, tzinfo=UTC)
FIXTURE = ROOT / "tests" / "fixtures" / "timers" / "timers.db"
FIXTURE_TIMERS = 26
Use = Callable[..., Result]


class Silent:
    async def publish(self, message: Message) -> None:
        raise AssertionError(f"expected no delivery, got {message.id}")


def timer(uid: str, seconds: float = 3600.0, purpose: Purpose = Purpose.EXPIRE, attempts: int = 0) -> Timer:
    ref = ObjectRef("batch/v1", "Job", "ci", f"build-{uid}", uid)
    return Timer(ref=ref, purpose=purpose, due_at=NOW + timedelta(seconds=seconds), attempts=attempts)


async def beside(folder: Path, *words: str) -> tuple[int | None, str]:
    """Run a command in another process: its exit code, and what it printed."""
    code = "from shared.cli.main import main; main()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, "timers", *words),
        cwd=folder,
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    return process.returncode, printed.decode()


def engine_on(path: Path) -> DurableTimers:
    return SqliteTimers(path, FakeClock(NOW), Silent())


def create(path: Path, timers: Sequence[Timer]) -> None:
    async def work() -> None:
        engine = engine_on(path)
        for start in range(0, len(timers), 500):
            await engine.set(timers[start : start + 500])
        await engine.close()

    asyncio.run(work())


def stored(path: Path) -> list[tuple[str, str, int, int]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT uid, purpose, due_us, attempts FROM timers ORDER BY uid, purpose").fetchall()


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """A command of `timers`, in a folder with a timer file of version 1."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TTL_TIMERS", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copy(FIXTURE, tmp_path / "timers.db")

    def run(*words: str, given: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, ["timers", *words], input=given)

    yield run
    assert list(tmp_path.glob("*.part")) == list(tmp_path.glob(".*.part")) == []


def test_ls_prints_a_table_and_counts(use: Use) -> None:
    result = use("ls", "--kind", "Namespace")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "NAMESPACE  KIND       NAME     PURPOSE  DUE                   ATTEMPTS",
        "-          Namespace  build-8  expire   2026-03-14T15:24:26Z  0",
    ]
    counts = "1 timer of 26 pending: 1 expire; the first is due at 2026-03-14T15:24:26.535897Z"
    assert result.stderr == f"timers: sqlite:timers.db\n{counts}\n"


def test_ls_prints_the_documented_json(use: Use) -> None:
    found = json.loads(use("ls", "-o", "json").stdout)
    assert {name: found[name] for name in ("listed", "byPurpose", "pending")} == {
        "listed": FIXTURE_TIMERS,
        "byPurpose": {"archive": 8, "enforce": 8, "expire": 10},
        "pending": FIXTURE_TIMERS,
    }
    assert found["firstDueAt"] == min(one["dueAt"] for one in found["timers"])
    assert found["timers"][0] == {
        "ref": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "ci", "name": "build-0", "uid": "uid-0"},
        "purpose": "expire",
        "dueAt": "2026-03-14T15:09:56.535897Z",
        "attempts": 3,
    }


def test_ls_without_a_match_is_an_empty_list(use: Use) -> None:
    found = json.loads(use("ls", "-o", "json", "-n", "other").stdout)
    assert (found["timers"], found["listed"], found["firstDueAt"]) == ([], 0, None)
    assert use("ls", "-n", "other").stderr == "timers: sqlite:timers.db\n0 timers of 26 pending\n"


def test_ls_lists_several_pages(use: Use, tmp_path: Path) -> None:
    create(tmp_path / "many.db", [timer(f"uid-{number}") for number in range(1200)])
    found = json.loads(use("ls", "-o", "json", "--timers", "sqlite:many.db").stdout)
    assert len({one["ref"]["uid"] for one in found["timers"]}) == found["listed"] == 1200


def test_ls_due_within_leaves_out_later_timers(use: Use, tmp_path: Path) -> None:
    now = (datetime.now(UTC) - NOW).total_seconds()
    create(tmp_path / "two.db", [timer("overdue", now - 3600), timer("later", now + 90_000)])
    found = json.loads(use("ls", "-o", "json", "--due-within", "1d", "--timers", "sqlite:two.db").stdout)
    assert [one["ref"]["uid"] for one in found["timers"]] == ["overdue"]


@pytest.mark.parametrize("by_file", [True, False], ids=["file", "pipe"])
def test_import_sets_what_export_wrote(use: Use, tmp_path: Path, *, by_file: bool) -> None:
    if by_file:
        assert use("export", "timers.jsonl").exit_code == 0
        assert stat.S_IMODE((tmp_path / "timers.jsonl").stat().st_mode) == 0o600
        result = use("import", "timers.jsonl", "--to", "sqlite:new.db")
    else:
        result = use("import", "--to", "sqlite:new.db", given=use("export").stdout)
    assert (result.exit_code, result.stdout) == (0, "26 timers set in sqlite:new.db\n")
    assert stored(tmp_path / "new.db") == stored(tmp_path / "timers.db")


def test_import_sets_the_earliest_of_several_timers_of_one_object(use: Use, tmp_path: Path) -> None:
    """An export of Cloud Tasks has them in any order; SQLite would keep the last one, and delete late."""
    lines = (first_line(), *(timer_line(timer("a", seconds)) for seconds in (600, 60, 3600, 60)), last_line(4))
    result = use("import", "--to", "sqlite:new.db", given="\n".join(lines) + "\n")
    assert (result.exit_code, result.stdout) == (0, "1 timer set in sqlite:new.db\n")
    create(tmp_path / "expected.db", [timer("a", 60)])
    assert stored(tmp_path / "new.db") == stored(tmp_path / "expected.db")


def test_export_begins_with_its_version_and_ends_with_its_count(use: Use) -> None:
    first, *_, last = use("export").stdout.splitlines()
    assert (json.loads(first)["version"], json.loads(last)) == (1, {"count": FIXTURE_TIMERS})


def test_export_never_replaces_a_file_unless_forced(use: Use, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for name in ("export", "backup"):
        result = use(name, "mine")
        assert (result.exit_code, (tmp_path / "mine").read_text()) == (2, "mine")
        assert "FILE: expected a new file" in result.stderr
    assert use("export", "mine", "--force").exit_code == 0
    assert use("backup", "mine", "--force").exit_code == 0
    assert stored(tmp_path / "mine") == stored(tmp_path / "timers.db")


WRONG = {
    "uid": (lambda line: line.replace("uid-3", ""), "line 5: ref: uid: expected printable text"),
    "time": (lambda line: line.replace('"dueAt":"2026', '"dueAt":"soon'), "line 5: dueAt: "),
    "attempts": (lambda line: line.replace('"attempts":0', '"attempts":-1'), "line 5: attempts: "),
    "purpose": (lambda line: line.replace("expire", "explode"), "line 5: purpose: "),
    "year": (lambda line: line.replace('"dueAt":"2026', '"dueAt":"99999'), "line 5: dueAt: "),
    "json": (lambda _: "{", "line 5: "),
    "1 MB": (lambda line: line.replace("build-3", "x" * 1_000_000), "line 5: expected at most 65536 bytes"),
}


@pytest.mark.parametrize(("change", "problem"), WRONG.values(), ids=WRONG)
def test_import_of_a_wrong_line_names_it_and_sets_nothing(
    use: Use, tmp_path: Path, change: Callable[[str], str], problem: str
) -> None:
    lines = use("export").stdout.splitlines()
    lines[4] = change(lines[4])
    result = use("import", "--to", "sqlite:new.db", given="\n".join(lines))
    assert result.exit_code == 1
    assert f"standard input: {problem}" in result.stderr
    assert "no timer was set" in result.stderr
    assert not (tmp_path / "new.db").exists()


CUT = {
    "nothing": (lambda _: [], "line 1: expected a JSON object"),
    "deep": (lambda lines: ["[" * 60_000, *lines], "line 1: expected a JSON object"),
    "no header": (lambda lines: lines[1:], "line 1: format: expected"),
    "newer": (lambda lines: [lines[0].replace("1}", "2}"), *lines[1:]], "line 1: version: expected 1, got 2"),
    "no end": (lambda lines: lines[:-1], "line 28: expected a timer or the count, got the end"),
    "a line less": (lambda lines: [*lines[:3], *lines[4:]], "line 27: count: expected 25, the number of lines before"),
    "more": (lambda lines: [*lines, lines[1]], "line 28: expected the end of the export"),
}


@pytest.mark.parametrize(("cut", "problem"), CUT.values(), ids=CUT)
def test_import_of_an_incomplete_export_sets_nothing(
    use: Use, tmp_path: Path, cut: Callable[[list[str]], list[str]], problem: str
) -> None:
    (tmp_path / "part.jsonl").write_text("\n".join(cut(use("export").stdout.splitlines())))
    result = use("import", "part.jsonl", "--to", "sqlite:new.db")
    assert (result.exit_code, f"part.jsonl: {problem}" in result.stderr) == (1, True), result.stderr
    assert not (tmp_path / "new.db").exists()


def test_interrupted_import_says_what_is_set_and_can_be_repeated(
    use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path / "many.db", [timer(f"uid-{number:04}") for number in range(1200)])
    use("export", "many.jsonl", "--timers", "sqlite:many.db")
    whole = SqliteTimers.set

    async def refuse_the_last(engine: SqliteTimers, timers: Sequence[Timer]) -> None:
        if len(timers) < 500:
            raise TryLaterError("the timer file is full")
        await whole(engine, timers)

    with monkeypatch.context() as patched:
        patched.setattr(SqliteTimers, "set", refuse_the_last)
        result = use("import", "many.jsonl", "--to", "sqlite:new.db")
        assert (result.exit_code, "1,000 of 1,200 timers are set: repeat the import" in result.stderr) == (1, True)
    assert use("import", "many.jsonl", "--to", "sqlite:new.db").exit_code == 0
    assert stored(tmp_path / "new.db") == stored(tmp_path / "many.db")


def test_commands_read_beside_the_process_that_owns_the_file(use: Use, tmp_path: Path) -> None:
    async def work() -> None:
        engine = engine_on(tmp_path / "timers.db")
        await engine.set([timer("new")])
        for words in (["export", "old.jsonl"], ["ls"], ["backup", "copy.db"]):
            code, printed = await beside(tmp_path, *words)
            assert code == 0, printed
        await engine.set([timer("later")])
        code, printed = await beside(tmp_path, "import", "old.jsonl", "--to", "sqlite:timers.db")
        assert (code, "another process holds the lock" in printed) == (1, True)
        assert await engine.pending() == FIXTURE_TIMERS + 2
        await engine.close()

    asyncio.run(work())
    assert len(stored(tmp_path / "copy.db")) == FIXTURE_TIMERS + 1


def test_backup_is_one_private_file_from_which_an_engine_starts(use: Use, tmp_path: Path) -> None:
    assert use("backup", "copy.db").stdout == "26 timers copied to copy.db\n"
    assert use("ls", "--timers", "sqlite:copy.db").exit_code == 0
    assert [one.name for one in tmp_path.glob("copy*")] == ["copy.db"]
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    create(tmp_path / "copy.db", [timer("new")])
    assert len(stored(tmp_path / "copy.db")) == FIXTURE_TIMERS + 1


def test_no_timer_is_lost_when_timers_move_with_sets_in_between(use: Use, tmp_path: Path) -> None:
    """Export while it runs, import, stop, export again, import again: the order of docs/how-to/move-timers.md."""
    old = tmp_path / "old.db"
    create(old, [timer(f"uid-{number:04}") for number in range(700)])

    async def work() -> None:
        engine = engine_on(old)
        export = beside(tmp_path, "export", "first.jsonl", "--timers", "sqlite:old.db")
        exporting = asyncio.create_task(export)
        await engine.set([timer("uid-0001", 60), timer("uid-0002", 7200, attempts=2)])
        assert (await exporting)[0] == 0
        await engine.set([timer("uid-0003", 60, Purpose.ARCHIVE), *(timer(f"new-{number}") for number in range(600))])
        assert (await beside(tmp_path, "import", "first.jsonl", "--to", "sqlite:new.db"))[0] == 0
        await engine.set([timer("last")])
        await engine.close()

    asyncio.run(work())
    result = use("export", "second.jsonl", "--except", "first.jsonl", "--timers", "sqlite:old.db")
    assert result.exit_code == 0
    assert 602 <= int(result.stderr.split()[0]) <= 604, "only what was set since the first export"
    assert use("import", "second.jsonl", "--to", "sqlite:new.db").exit_code == 0
    before, after = stored(old), stored(tmp_path / "new.db")
    assert set(before) == set(after)


ERRORS = {
    "no file": (["ls", "--timers", "sqlite:none.db"], 1, "none.db: expected a timer file, got none"),
    "no address": (["ls", "--timers", "none"], 2, "--timers: expected sqlite:PATH"),
    "no target": (["import", "--to", "none"], 2, "--to: expected sqlite:PATH"),
    "no target at all": (["import", "new.jsonl"], 2, "--to: expected where to set the timers"),
    "export over its source": (["export", "timers.db", "--force"], 2, "expected another file than the timer file"),
    "backup over its source": (["backup", "timers.db", "--force"], 2, "expected another file than the timer file"),
    "no folder": (["export", "none/file"], 1, "FILE: none/file cannot be written"),
    "no export": (["import", "none.jsonl", "--to", "sqlite:new.db"], 1, "FILE: none.jsonl cannot be read"),
    "no earlier export": (["export", "--except", "none.jsonl"], 1, "--except: none.jsonl cannot be read"),
    "earlier file is no export": (["export", "--except", "timers.db"], 1, "timers.db: line 1: expected a JSON object"),
    "purpose": (["ls", "--purpose", "explode"], 2, "'--purpose'"),
    "time": (["ls", "--due-within", "soon"], 2, "--due-within"),
    "backup of NATS": (["backup", "copy", "--timers", "nats://host"], 2, "--timers: expected sqlite:FILE, got nats://"),
}


@pytest.mark.parametrize(("words", "code", "problem"), ERRORS.values(), ids=ERRORS)
def test_error_names_the_field(use: Use, words: list[str], code: int, problem: str) -> None:
    result = use(*words)
    assert (result.exit_code, problem in result.stderr) == (code, True), result.output


@pytest.fixture
def state(use: Use, tmp_path: Path) -> Path:
    """The state folder of a user who is in a folder without a timer file."""
    (tmp_path / "timers.db").unlink()
    return tmp_path / "state"


def test_timers_of_run_are_found_without_an_option(use: Use, state: Path) -> None:
    shutil.copy(FIXTURE, make_path_of_run("https://127.0.0.1:6443", dry_run=False))
    about = f"timers: sqlite:{make_path_of_run('https://127.0.0.1:6443', dry_run=False)}\n"
    assert use("ls", "--kind", "Namespace").stderr.startswith(f"{about}1 timer of 26 pending")
    assert use("export", "all.jsonl").stderr.startswith(f"{about}26 timers exported")
    assert use("backup", "copy.db").exit_code == 0
    assert len(list(state.rglob("*.db"))) == 1


def test_timers_of_run_take_precedence_over_a_file_in_this_folder(use: Use, state: Path, tmp_path: Path) -> None:
    assert state
    create(tmp_path / "timers.db", [timer("a")])
    of_run = make_path_of_run("https://127.0.0.1:6443", dry_run=False)
    shutil.copy(FIXTURE, of_run)
    assert use("ls", "--kind", "Namespace").stderr.startswith(f"timers: sqlite:{of_run}\n1 timer of 26 pending")


def test_ls_names_the_file_in_this_folder(use: Use) -> None:
    assert use("ls").stderr.startswith("timers: sqlite:timers.db\n")


def test_timers_of_a_dry_run_are_listed_and_not_backed_up(use: Use, state: Path) -> None:
    assert state
    shutil.copy(FIXTURE, make_path_of_run("https://127.0.0.1:6443", dry_run=True))
    assert "1 timer of 26 pending" in use("ls", "--kind", "Namespace").stderr
    for words in (("export", "all.jsonl"), ("backup", "copy.db")):
        result = use(*words)
        assert (result.exit_code, "got only that of a dry run" in result.stderr) == (1, True), result.stderr


def test_file_of_a_dry_run_does_not_hide_the_other_one(use: Use, state: Path) -> None:
    server = "https://127.0.0.1:6443"
    shutil.copy(FIXTURE, make_path_of_run(server, dry_run=False))
    make_path_of_run(server, dry_run=True).write_bytes(b"")
    (state / "ttl-after-finished" / "timers-notes.db").mkdir()
    assert "1 timer of 26 pending" in use("ls", "--kind", "Namespace").stderr


def test_state_folder_that_cannot_be_read_is_one_error(use: Use, state: Path) -> None:
    state.mkdir()
    (state / "ttl-after-finished").write_text("a file")
    result = use("ls")
    assert (result.exit_code, "cannot look for the timer file of `run`" in result.stderr) == (1, True), result.stderr


def test_file_of_one_of_several_runs_has_to_be_named(use: Use, state: Path) -> None:
    assert state
    paths = sorted(make_path_of_run(server, dry_run=False) for server in ("https://west", "https://east"))
    for path in paths:
        shutil.copy(FIXTURE, path)
    result = use("ls")
    assert result.exit_code == 1
    assert f"got 2; set --timers to one of them: sqlite:{paths[0]}, sqlite:{paths[1]}" in result.stderr


@pytest.mark.usefixtures("state")
def test_without_any_timer_file_the_error_says_where_timers_are(use: Use) -> None:
    result = use("ls")
    assert (result.exit_code, "the timer file of a `run`" in result.stderr) == (1, True)
    assert "kubectl -n ttl-after-finished exec POD -- ttl-after-finished timers ls" in result.stderr


def test_damaged_file_is_one_error(use: Use, tmp_path: Path) -> None:
    (tmp_path / "timers.db").write_bytes(b"to be, or not to be" * 1000)
    for words in (["ls"], ["export"], ["backup", "copy.db"]):
        result = use(*words)
        assert result.exit_code == 1
        assert "expected a timer file that is not damaged, got: file is not a database" in result.stderr


def test_export_of_a_damaged_file_leaves_no_file(use: Use, tmp_path: Path) -> None:
    create(tmp_path / "many.db", [timer(f"uid-{number}") for number in range(3000)])
    with (tmp_path / "many.db").open("r+b") as file:
        file.seek(16 * 4096)
        file.write(b"\xff" * 40 * 4096)
    result = use("export", "many.jsonl", "--timers", "sqlite:many.db")
    assert (result.exit_code, "not damaged" in result.stderr) == (1, True), result.output
    assert not (tmp_path / "many.jsonl").exists()
