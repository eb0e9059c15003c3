"""The peer: kube-controller-manager's TTL controller, with the garbage collector that its Foreground deletes need."""

import os
import signal
from collections.abc import Iterator, Mapping
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


DEFAULT = Peer(20, 30)
TUNED = Peer(5_000, 10_000, {"ttl-after-finished": 50, "gc": 50})


@contextmanager
def running(server: RealServer, peer: Peer) -> Iterator[int]:
    """The peer's process id, until the block ends; the servers under it go on."""
    server.start_controllers(NAMES, qps=peer.qps, burst=peer.burst, syncs=peer.syncs)
    pid = server.pid("kube-controller-manager")
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGTERM)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
