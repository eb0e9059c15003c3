"""Create or check the stream of the timers and its consumers; each problem is one error that says what to do."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from shared.adapters.timers.nats.connection import AbsentJetStreamError, ApiError, NatsConnection, NatsRequest
from shared.adapters.timers.nats.schedules import fired_subjects, text_of, token_of
from shared.errors import TryLaterError, TtlError
from shared.messages import Purpose

SERVER_MIN = (2, 14)
"""The oldest nats-server: 2.12 and 2.13 have message schedules too, but how they replace one was never tested here."""

MESSAGE_BYTES_MAX = 64 * 1024
"""The largest message of the stream."""

START_RETRY_SECONDS = 1.0
"""Pause between attempts to start while the servers are not ready."""

ACK_SECONDS = 10.0
"""After this time without a heartbeat of its process, a fired timer is delivered by another process."""

UNACKNOWLEDGED_MAX = 500_000
"""Maximum number of fired timers per purpose that are in all processes together, or delayed by a nak."""

ROOM_READ_SECONDS = 1.0
"""How old the size of the stream may be; in this time, each other process may store more."""

STREAM_FULL_SECONDS = 10.0
"""Retry-After if the stream is full: due timers may have fired by then."""

_OVERHEAD_BYTES = 400  # the subject, the headers and the record of a message
_ABSENT_STREAM = 10059
_OFF = (10076, 10039)
_NO_QUORUM = (10008, 10009)
_BUSY = 10049  # also while a stream of this name is being deleted
_NO_PEERS = (10005, 10074)
_NANOSECONDS = 1_000_000_000
_log = logging.getLogger("ttl")


class TimerStream:
    """The stream of the timers.

    Args:
        connection: The connection.
        name: The name of the stream.
        replicas: On how many servers it is stored.
        bytes_max: Its maximum size.
    """

    def __init__(self, connection: NatsConnection, name: str, replicas: int, bytes_max: int) -> None:
        self._connection, self._name, self._replicas, self._bytes_max = connection, name, replicas, bytes_max
        self._used, self._read_at = 0, -ROOM_READ_SECONDS

    async def ensure(self) -> tuple[str, ...]:
        """Create the stream and the consumers, or check and update them.

        Returns:
            The purposes whose timers fire: ours, and those of later versions.

        Raises:
            TtlError: The servers cannot hold the timers, and only an operator can change that.
            TryLaterError: The servers do not answer, or have no leader yet.
        """
        with self._explaining():
            await self._update(await self._require(creates=True))
            return await self._ensure_consumers()

    async def open(self, *, creates: bool) -> None:
        """Check the stream, or create it; change no setting of it, since a command may have others than `timers`.

        Raises:
            TtlError: There is no such stream, and else as `ensure`.
            TryLaterError: As `ensure`.
        """
        with self._explaining():
            await self._require(creates=creates)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn errors of the servers into errors that say what to do."""
        try:
            yield
        except AbsentJetStreamError as error:
            raise TtlError(
                "JetStream is off on the NATS servers, or for this account; expected it to be on: start nats-server "
                "with -js, and enable JetStream for the account"
            ) from error
        except ApiError as error:
            raise self._explain(error) from error
        except TryLaterError as error:
            if not self._connection.violation:
                raise
            raise TtlError(
                f"a right is missing on the NATS servers: {self._connection.violation}; expected the rights to publish "
                f'to "{self._name}.>", "$JS.API.>" and "$JS.ACK.{self._name}.>", and to subscribe to "_INBOX.>"; '
                "grant them to the user"
            ) from error

    async def info(self) -> dict[str, Any]:
        """Read the state of the stream.

        Raises:
            TryLaterError: The servers do not answer.
        """
        answer: dict[str, Any] = (await self._connection.api(f"STREAM.INFO.{self._name}"))["state"]
        return answer

    async def require_room(self, messages: Sequence[NatsRequest]) -> None:
        """Require that the stream has room for timers that are about to be stored.

        The servers cannot refuse messages of a full stream that has schedules: they would discard the oldest ones
        instead. So each process reads the size at most once a second, and adds what it stores itself in between.

        Raises:
            TryLaterError: The stream is full, or its size cannot be read.
        """
        if (now := time.monotonic()) - self._read_at >= ROOM_READ_SECONDS:
            self._read_at = now  # other calls do not read meanwhile
            self._used = int((await self.info())["bytes"])
        wanted = sum(len(message.body) + _OVERHEAD_BYTES for message in messages)
        if self._used + wanted > self._bytes_max:
            raise TryLaterError(
                f"the stream of the timers is full: {self._used} of {self._bytes_max} bytes (TTL_NATS_BYTES)",
                retry_after_seconds=STREAM_FULL_SECONDS,
            )
        self._used += wanted

    async def _require(self, *, creates: bool) -> dict[str, Any]:
        """Return the configuration of the stream, which is checked; create the stream if that is wanted."""
        if (version := self._connection.version)[:2] < SERVER_MIN:
            raise TtlError(
                f"nats-server {_dotted(version)} is too old for timers; expected {_dotted(SERVER_MIN)} or newer, which "
                "has message schedules: upgrade the NATS servers"
            )
        try:
            found: dict[str, Any] = (await self._connection.api(f"STREAM.INFO.{self._name}"))["config"]
        except ApiError as error:
            if error.code != _ABSENT_STREAM:
                raise
            if not creates:
                raise TtlError(
                    f"stream {self._name}: expected a stream of timers, got none; correct the address of the timers"
                ) from error
            found = (await self._connection.api(f"STREAM.CREATE.{self._name}", self._wanted()))["config"]
            _log.info("stream created", extra={"fields": {"stream": self._name, "replicas": self._replicas}})
        self._check(found)
        return found

    async def _update(self, found: Mapping[str, Any]) -> None:
        """Change the settings that may change; the stream never gets fewer replicas.

        Otherwise a process without TTL_NATS_REPLICAS, such as a `run` on a laptop, would remove copies of all timers.
        """
        wanted = self._wanted()
        changes = {field: wanted[field] for field in ("num_replicas", "max_msg_size") if found[field] != wanted[field]}
        if found["num_replicas"] > self._replicas:
            del changes["num_replicas"]
            fields = {"stream": self._name, "replicas": found["num_replicas"], "wanted": self._replicas}
            _log.warning("stream keeps its replicas: TTL_NATS_REPLICAS is smaller", extra={"fields": fields})
        if changes:
            await self._connection.api(f"STREAM.UPDATE.{self._name}", {**found, **changes})
            _log.info("stream updated", extra={"fields": {"stream": self._name, **changes}})

    def _wanted(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "description": "Timers of ttl-after-finished",
            "subjects": [f"{self._name}.>"],
            "retention": "workqueue",
            "storage": "file",
            "discard": "old",  # the server requires it for schedules; without limits it discards nothing
            "num_replicas": self._replicas,
            "max_msg_size": MESSAGE_BYTES_MAX,
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msgs_per_subject": -1,
            "allow_direct": True,
            "allow_msg_schedules": True,
        }

    def _check(self, found: Mapping[str, Any]) -> None:
        """Require the settings without which timers are lost or do not fire."""
        wanted = self._wanted()
        unlimited = {"max_msgs": -1, "max_bytes": -1, "max_msgs_per_subject": -1, "max_age": 0}
        exact = ("subjects", "retention", "storage", "allow_msg_schedules", "allow_direct")
        for field in (*exact, *unlimited):
            got = found.get(field, unlimited.get(field))
            if got != wanted[field] and not (field in unlimited and (got or 0) <= 0):
                raise TtlError(
                    f"stream {self._name}: expected {field} {wanted[field]!r}, got {got!r}, with which timers are lost "
                    "or do not fire; name another stream in TTL_TIMERS, or change the setting"
                )
        for field in ("mirror", "sources", "sealed", "no_ack", "republish", "subject_transform"):
            if found.get(field):
                raise TtlError(
                    f"stream {self._name}: expected no {field}; name another stream in TTL_TIMERS, or change it"
                )

    async def _ensure_consumers(self) -> tuple[str, ...]:
        answer = await self._connection.api(f"CONSUMER.LIST.{self._name}", {"offset": 0})
        configs = {one["name"]: one["config"] for one in answer.get("consumers") or ()}
        for purpose in Purpose:
            await self._ensure_consumer(token_of(purpose), configs.pop(token_of(purpose), None))
        later = [
            name for name, config in configs.items() if config.get("filter_subject") == fired_subjects(self._name, name)
        ]
        return (*(str(purpose) for purpose in Purpose), *map(text_of, later))

    async def _ensure_consumer(self, name: str, found: Mapping[str, Any] | None) -> None:
        wanted = {
            "durable_name": name,
            "name": name,
            "filter_subject": fired_subjects(self._name, name),
            "ack_policy": "explicit",
            "ack_wait": int(ACK_SECONDS * _NANOSECONDS),
            "max_ack_pending": UNACKNOWLEDGED_MAX,
            "max_deliver": -1,
            "deliver_policy": "all",
            "replay_policy": "instant",
        }
        if found and all(found.get(field) == value for field, value in wanted.items()):
            return
        request = {"stream_name": self._name, "config": wanted}
        await self._connection.api(f"CONSUMER.DURABLE.CREATE.{self._name}.{name}", request)

    def _explain(self, error: ApiError) -> TtlError:
        if error.code in _OFF:
            return TtlError(f"JetStream is off for this account ({error}); expected it to be on: enable it")
        if error.code in _NO_QUORUM:
            return TryLaterError(f"the NATS servers have no quorum ({error}); start more than half of them")
        if error.code == _BUSY:
            return TryLaterError(f"the NATS servers cannot create the stream now ({error}); look at their disk and log")
        if error.is_out_of_storage:
            return TryLaterError(str(error))
        if error.code in _NO_PEERS:
            return TtlError(
                f"the NATS servers cannot store the stream on {self._replicas} servers ({error}); "
                "add servers or space, or set TTL_NATS_REPLICAS to a smaller number"
            )
        return TtlError(f"stream {self._name}: {error}; change the stream, or name another one in TTL_TIMERS")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
