"""What the stream of the timers on NATS requires of its servers, and what it changes."""

import logging
from typing import Any, cast

import pytest

from shared.adapters.timers.nats.connection import ApiError, NatsConnection
from shared.adapters.timers.nats.stream import MESSAGE_BYTES_MAX, TimerStream
from shared.errors import TryLaterError, TtlError

pytestmark = pytest.mark.anyio


class Servers:
    """Servers with a stream of some replicas, which answer with an error if there is one."""

    violation = ""

    def __init__(
        self, replicas: int = 1, *, version: tuple[int, int, int] = (2, 15, 2), error: ApiError | None = None
    ) -> None:
        self.version, self.error, self.updates = version, error, list[dict[str, Any]]()
        self.config = TimerStream(cast(NatsConnection, self), "timers", replicas, 1024**3)._wanted()

    async def api(self, subject: str, request: Any = None) -> dict[str, Any]:
        if self.error:
            raise self.error
        if subject.startswith("STREAM.UPDATE"):
            self.updates.append(request)
        return {"config": self.config, "consumers": []}

    async def ensure(self, replicas: int) -> None:
        await TimerStream(cast(NatsConnection, self), "timers", replicas, 1024**3).ensure()


async def test_stream_gets_more_replicas() -> None:
    servers = Servers(1)
    await servers.ensure(3)
    assert [update["num_replicas"] for update in servers.updates] == [3]


async def test_stream_keeps_its_replicas_if_a_process_wants_fewer(caplog: pytest.LogCaptureFixture) -> None:
    """Such as a `run` on a laptop, without TTL_NATS_REPLICAS."""
    caplog.set_level(logging.WARNING, "ttl")
    servers = Servers(3)
    await servers.ensure(1)
    assert servers.updates == []
    assert [record.message for record in caplog.records] == ["stream keeps its replicas: TTL_NATS_REPLICAS is smaller"]


async def test_stream_keeps_its_replicas_if_another_setting_changes() -> None:
    servers = Servers(3)
    servers.config["max_msg_size"] = 1
    await servers.ensure(1)
    assert [(one["num_replicas"], one["max_msg_size"]) for one in servers.updates] == [(3, MESSAGE_BYTES_MAX)]


async def test_server_that_is_too_old_is_named() -> None:
    with pytest.raises(TtlError, match=r"nats-server 2\.13\.1 is too old for timers; expected 2\.14 or newer"):
        await Servers(version=(2, 13, 1)).ensure(1)


async def test_servers_without_a_quorum_are_asked_again() -> None:
    with pytest.raises(TryLaterError, match=r"no quorum .* start more than half of them"):
        await Servers(error=ApiError("JetStream system temporarily unavailable", 10008)).ensure(1)
