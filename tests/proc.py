"""What Linux says about the memory of a process."""

from pathlib import Path
from typing import Literal


def memory_kb(pid: int, field: Literal["VmRSS", "VmHWM"]) -> int:
    """The resident memory of a process: now (`VmRSS`), or at the most so far (`VmHWM`)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0])
