"""Choose loopback ports for servers, so that no two processes of one user choose the same one."""

import fcntl
import os
import secrets
import socket
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

# Below the ports of outgoing connections (32768 and up on Linux), so that no connection takes one before its server.
_PORTS = range(20_000, 32_768)
_chosen: set[int] = set()


def free_port() -> int:
    """Return a port on which nothing listens now; no other process gets it from this function while this one lives.

    Without that, a process could choose the port of a server that another process is about to start. So each choice is
    a lock on one byte of a file. The kernel releases the locks when the process ends. Other programs ignore them.

    Raises:
        OSError: The file of the locks, in the folder for temporary files, cannot be written.
    """
    locks = _locks()
    while True:
        port = secrets.choice(_PORTS)
        if port not in _chosen and _is_unused(port) and _lock(locks, port):
            _chosen.add(port)  # the locks of one process do not exclude each other
            return port


def _is_unused(port: int) -> bool:
    with socket.socket() as listener, suppress(OSError):
        listener.bind(("127.0.0.1", port))
        return True
    return False


def _lock(locks: int, port: int) -> bool:
    with suppress(BlockingIOError, PermissionError):  # which of the two, POSIX leaves open
        fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        return True
    return False


@cache
def _locks() -> int:
    """Return the descriptor of the file of the locks. It stays open: POSIX releases all locks when one is closed."""
    path = Path(tempfile.gettempdir(), f"ttl-after-finished-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
