"""Let the threads of obstore finish before the interpreter ends.

obstore answers a coroutine from a thread of its own, which then still has Python objects to drop. If the interpreter is
finalizing by then, the thread ends the process with SIGABRT: one command in five, after all its work was done. See
PyO3/pyo3-async-runtimes#40.
"""

import atexit
import time
from functools import cache

QUIET_SECONDS = 0.1
"""How long the end of a process waits for these threads; they need the interpreter for microseconds."""


@cache
def wait_at_exit() -> None:
    """Wait at the end of this process, while other threads may still use the interpreter."""
    atexit.register(time.sleep, QUIET_SECONDS)
