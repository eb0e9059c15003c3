"""The queue between a watch and its sink: it keeps only the newest event of each object."""

import asyncio
from collections.abc import Awaitable, Callable

from shared.adapters.events.cloudevents import Event

EVENTS_IN_FLIGHT_MAX = 32
"""Events in flight at the same time, each of another object."""

OUTBOX_BYTES_MAX = 16 * 1024 * 1024
"""The limit of event data that waits or is in flight; one further event may exceed it."""


class Outbox:
    """Sends events: those of different objects in parallel, those of one object in order.

    A slow event delays no other object. A newer event replaces an event of the same object that still waits. If the
    sink accepts nothing, `put` waits, and so the watch stops reading.

    Args:
        send: Sends one event; it must not raise.
        group: The task group that the sending tasks run in.
    """

    def __init__(self, send: Callable[[Event], Awaitable[None]], group: asyncio.TaskGroup) -> None:
        self._send = send
        self._group = group
        self._waiting: dict[str, Event] = {}
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._bytes = 0
        self._freed = asyncio.Event()

    async def put(self, uid: str, event: Event) -> None:
        """Queue the newest event of an object; wait until there is room for it.

        Args:
            uid: The object's uid.
            event: The event; it replaces an event of the same object that still waits.
        """
        while self._bytes > OUTBOX_BYTES_MAX:
            self._freed.clear()
            await self._freed.wait()
        outdated = self._waiting.pop(uid, None)
        self._bytes += len(event.data) - (len(outdated.data) if outdated else 0)
        self._waiting[uid] = event
        self._start_sends()

    def cancel(self) -> None:
        """Cancel the events in flight; the waiting events are not sent."""
        for task in self._in_flight.values():
            task.cancel()

    def _start_sends(self) -> None:
        while len(self._in_flight) < EVENTS_IN_FLIGHT_MAX:
            uid = next((one for one in self._waiting if one not in self._in_flight), None)
            if uid is None:
                return
            task = self._group.create_task(self._send_one(uid, self._waiting.pop(uid)))
            self._in_flight[uid] = task

    async def _send_one(self, uid: str, event: Event) -> None:
        await self._send(event)
        del self._in_flight[uid]
        self._bytes -= len(event.data)
        self._freed.set()
        self._start_sends()
