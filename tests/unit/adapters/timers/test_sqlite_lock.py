"""The lock of a timer file: one owner, and a short wait for a process that only checks the file."""

import os
import threading
from pathlib import Path

import pytest

from shared.adapters.timers.sqlite import lock as sqlite_lock
from shared.adapters.timers.sqlite.lock import OwnedError, lock_file


def test_file_that_another_owner_releases_soon_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "timers.db"
    held = lock_file(path)
    release = threading.Timer(2 * sqlite_lock.LOCK_PAUSE_SECONDS, os.close, [held])
    release.start()

    os.close(lock_file(path))

    release.join()


def test_file_of_another_owner_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_lock, "LOCK_SECONDS_MAX", 2 * sqlite_lock.LOCK_PAUSE_SECONDS)
    path = tmp_path / "timers.db"
    held = lock_file(path)

    with pytest.raises(OwnedError, match="another process holds the lock"):
        lock_file(path)

    os.close(held)
    os.close(lock_file(path))


def test_two_links_to_one_file_have_one_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_lock, "LOCK_SECONDS_MAX", 2 * sqlite_lock.LOCK_PAUSE_SECONDS)
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
