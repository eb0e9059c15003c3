"""The lock of a timer file: one owner, and a short wait for a process that only checks the file."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from shared.adapters.timers.sqlite import file as sqlite_file
from shared.adapters.timers.sqlite.file import OwnedError, lock_file


class Pauses:
    """The pauses between the attempts, which take no time.

    Attributes:
        at_last: What happens in the pause before the last attempt.
    """

    def __init__(self) -> None:
        self.left = int(sqlite_file.LOCK_SECONDS_MAX / sqlite_file.LOCK_PAUSE_SECONDS)
        self.at_last: Callable[[], None] = lambda: None

    def sleep(self, _seconds: float) -> None:
        self.left -= 1
        if self.left == 0:
            self.at_last()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    pauses = Pauses()
    monkeypatch.setattr(sqlite_file, "time", pauses)
    return pauses


def test_file_that_another_owner_releases_soon_is_locked(tmp_path: Path, pauses: Pauses) -> None:
    path = tmp_path / "timers.db"
    held = lock_file(path)
    pauses.at_last = partial(os.close, held)

    os.close(lock_file(path))

    assert pauses.left == 0


@pytest.mark.usefixtures("pauses")
def test_file_of_another_owner_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "timers.db"
    held = lock_file(path)

    with pytest.raises(OwnedError, match="another process holds the lock"):
        lock_file(path)

    os.close(held)
    os.close(lock_file(path))


@pytest.mark.usefixtures("pauses")
def test_two_links_to_one_file_have_one_owner(tmp_path: Path) -> None:
    links = [tmp_path / "here" / "timers.db", tmp_path / "there" / "timers.db"]
    for link in links:
        link.parent.mkdir()
        link.symlink_to(tmp_path / "timers.db")
    held = lock_file(links[0])

    for path in (links[1], tmp_path / "timers.db"):
        with pytest.raises(OwnedError, match="another process holds the lock"):
            lock_file(path)

    os.close(held)
    os.close(lock_file(links[1]))
