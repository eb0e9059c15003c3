"""What Linux says about a process."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Literal


def memory_kb(pid: int, field: Literal["VmRSS", "VmHWM"]) -> int:
    """The resident memory of a process: now (`VmRSS`), or at the most so far (`VmHWM`)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0])


PAUSE_SECONDS_MAX = 30.0


def send(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal; after SIGSTOP, wait until each thread has stopped: on a busy machine they run on for a while.

    Raises:
        TimeoutError: A thread still runs after 30 s.
    """
    process.send_signal(number)
    if number != signal.SIGSTOP:
        return
    deadline = time.monotonic() + PAUSE_SECONDS_MAX
    while not all(map(_is_stopped, Path(f"/proc/{process.pid}/task").iterdir())):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {process.pid}: expected all threads to stop within {PAUSE_SECONDS_MAX:g} s")
        time.sleep(0.01)


def _is_stopped(thread: Path) -> bool:
    state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"
