"""`timers export | import` between engines, over a real nats-server."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shared.cli.main import main
from shared.devserver.ports import free_port
from tests.builders import ROOT
from tests.nats_servers import nats_server

pytestmark = pytest.mark.timeout(60)

TIMERS = 26
"""Timers of the fixture; all are overdue."""

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def no_file_of_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands find no timer file of a `run` on this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def use(*words: str) -> Result:
    result = CliRunner().invoke(main, ["timers", *words])
    assert result.exit_code == 0, result.output
    return result


def sorted_lines(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines())


def test_timers_move_from_a_file_to_nats_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests" / "fixtures" / "timers" / "timers.db", "timers.db")
    with nats_server(tmp_path / "nats") as server:
        address = f"nats://127.0.0.1:{server.port}"
        use("export", "first.jsonl")
        assert use("import", "first.jsonl", "--to", address).stdout.startswith(f"{TIMERS} timers set in {address}")
        assert json.loads(use("ls", "-o", "json", "--timers", address).stdout)["listed"] == TIMERS
        use("export", "second.jsonl", "--timers", address)
    assert sorted_lines(tmp_path / "second.jsonl") == sorted_lines(tmp_path / "first.jsonl")
    use("import", "second.jsonl", "--to", "sqlite:new.db")
    use("export", "third.jsonl", "--timers", "sqlite:new.db")
    assert sorted_lines(tmp_path / "third.jsonl") == sorted_lines(tmp_path / "first.jsonl")


def test_timers_set_during_the_move_follow_with_the_second_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests" / "fixtures" / "timers" / "timers.db", "timers.db")
    with nats_server(tmp_path / "nats") as server:
        address = f"nats://127.0.0.1:{server.port}"
        use("export", "timers.jsonl")
        use("import", "timers.jsonl", "--to", address)
        set_meanwhile(tmp_path)
        use("export", "since.jsonl", "--except", "timers.jsonl")
        assert use("import", "since.jsonl", "--to", address).stdout.startswith(f"2 timers set in {address}")
        use("export", "moved.jsonl", "--timers", address)
    use("export", "all.jsonl")
    moved, current = (
        {line for line in sorted_lines(tmp_path / name) if "count" not in line} for name in ("moved.jsonl", "all.jsonl")
    )
    assert current <= moved
    assert len(moved - current) == 1  # NATS keeps the timer that was replaced in the file
    assert (tmp_path / "moved.jsonl").read_text().count(f'"traceparent":"{TRACEPARENT}"') == 1


def set_meanwhile(folder: Path) -> None:
    """Set a timer of a new object, and replace one that was exported already."""
    form, first, *_, count = map(json.loads, (folder / "timers.jsonl").read_text().splitlines())
    new = first | {"ref": first["ref"] | {"uid": "set-meanwhile"}, "traceparent": TRACEPARENT}
    replaced = first | {"dueAt": "2030-01-01T00:00:00Z"}
    lines = (form, new, replaced, dict.fromkeys(count, 2))
    (folder / "meanwhile.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    use("import", "meanwhile.jsonl", "--to", "sqlite:timers.db")


def test_absent_server_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.bootstrap.timer_engine.OPEN_SECONDS", 2.0)
    result = CliRunner().invoke(main, ["timers", "ls", "--timers", f"nats://127.0.0.1:{free_port()}"])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "Error: the servers of the timers were not ready within 2 s" in result.stderr
