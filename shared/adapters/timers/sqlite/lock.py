"""Who may use a timer file: the lock of the process that owns it, and the modes of the file and of those beside it."""

import fcntl
import logging
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from shared.errors import TtlError

OWNER_ONLY = 0o600
"""Mode of the file and of the files beside it: a timer has an object's name, its namespace and when it is deleted."""

LOCK_SECONDS_MAX = 1.0
"""How long to wait for another process that owns the file."""

LOCK_PAUSE_SECONDS = 0.05
"""The pause between two attempts."""

_log = logging.getLogger("ttl")


class OwnedError(TtlError):
    """Another process owns the timer file."""


def lock_file(path: Path) -> int:
    """Lock the file; the kernel releases the lock when the process ends, even after a crash.

    Not a lock on the file itself: closing any descriptor of a SQLite file drops SQLite's own locks.

    The lock stands beside the file itself, so that two links to one file have one lock.

    A process that starts owns the file for the moment of its own check, so an owned file is tried again for a while.
    """
    name = f"{path.resolve()}.lock"
    lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    pauses = int(LOCK_SECONDS_MAX / LOCK_PAUSE_SECONDS)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if pauses == 0:
                os.close(lock)
                expected = "expected to be its only owner, but another process holds the lock"
                raise OwnedError(f"{path}: {expected} {name}; stop that process, or set another TTL_TIMERS") from None
            pauses -= 1
            time.sleep(LOCK_PAUSE_SECONDS)
        else:
            return lock


def keep_private(path: Path) -> None:
    """Create the file, and set the mode of its files; SQLite gives its own files beside it the same mode."""
    file = path.resolve()  # SQLite follows a link before it names the files beside it
    with suppress(FileExistsError):
        file.touch(OWNER_ONLY, exist_ok=False)
    for one in (Path(f"{file}{ending}") for ending in ("", "-wal", "-shm", "-journal", ".lock")):
        mode = stat.S_IMODE(one.stat().st_mode) if one.exists() else OWNER_ONLY
        try:
            if mode != OWNER_ONLY:
                one.chmod(OWNER_ONLY)
        except OSError as error:  # another user's file, or a volume without modes: its timers must fire nevertheless
            fields = {"file": f"{one}", "mode": f"{mode:04o}", "error": str(error)}
            _log.warning("the mode of the timer file cannot be set to 0600", extra={"fields": fields})
