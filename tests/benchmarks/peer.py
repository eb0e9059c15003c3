"""The peers: kube-controller-manager's TTL controller with the garbage collector, and its Job controller."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from shared.devserver.real_servers import RealServer

NAMES = ("ttl-after-finished-controller", "garbage-collector-controller")


@dataclass(frozen=True)
class Peer:
    """How it is started."""

    qps: int
    burst: int
    syncs: Mapping[str, int] = field(default_factory=dict)
    names: Sequence[str] = NAMES


DEFAULT = Peer(20, 30)
TUNED = Peer(5_000, 10_000, {"ttl-after-finished": 50, "gc": 50})
JOBS = Peer(5_000, 10_000, {"job": 50}, ("job-controller",))
"""The Job controller, tuned likewise: it enforces `activeDeadlineSeconds`."""


@contextmanager
def running(server: RealServer, peer: Peer) -> Iterator[int]:
    """The peer's process id, until the block ends; the servers under it go on."""
    server.start_controllers(peer.names, qps=peer.qps, burst=peer.burst, syncs=peer.syncs)
    pid = server.pid("kube-controller-manager")
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGTERM)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
