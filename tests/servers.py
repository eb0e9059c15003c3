"""The servers that tests share: one of each in a run of pytest. The tests keep apart by their namespaces and buckets.

A file has a server of its own only if it breaks the server, installs what others want absent, or needs other
controllers.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

import pytest

from shared.devserver.real_servers import RealServer, real_server
from tests.required import required_assets
from tests.s3_servers import S3Server, required_s3_program, s3_server

CONTROLLERS = ("job-controller", "garbage-collector-controller", "clusterrole-aggregation-controller")
"""Those of the shared API server. A Job that a test finishes by itself has a `managedBy` of its own."""

_API_SERVER = pytest.StashKey[RealServer]()
_S3_SERVER = pytest.StashKey[S3Server]()
_S = TypeVar("_S")


def shared_api_server(config: pytest.Config) -> RealServer:
    """A kube-apiserver with the controllers of Jobs and of garbage."""
    return _shared(config, _API_SERVER, _api_server)


@pytest.fixture(name="server", scope="module")
def shared_server(pytestconfig: pytest.Config) -> RealServer:
    """The shared API server, for a file that imports this fixture."""
    return shared_api_server(pytestconfig)


def shared_s3_server(config: pytest.Config) -> S3Server:
    """An S3 server."""
    return _shared(config, _S3_SERVER, lambda: s3_server(required_s3_program()))


def _shared(config: pytest.Config, key: pytest.StashKey[_S], start: Callable[[], AbstractContextManager[_S]]) -> _S:
    """Start a server at its first use; it stops with pytest. Fixtures of several conftest.py return the same one."""
    if key not in config.stash:
        stack = ExitStack()
        config.stash[key] = stack.enter_context(start())
        config.add_cleanup(stack.close)
    return config.stash[key]


@contextmanager
def _api_server() -> Iterator[RealServer]:
    # Secrets without the watch cache: history that etcd compacted is gone at once, as it is elsewhere after minutes.
    with real_server(required_assets(), fsync=False, apiserver_args=["--watch-cache-sizes=secrets#0"]) as server:
        if server.has_controllers():
            server.start_controllers(CONTROLLERS, qps=500, burst=500)
        yield server
