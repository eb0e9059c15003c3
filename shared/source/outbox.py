"""What a watch has to tell and could not yet: of each object only the newest event."""

import asyncio
from collections.abc import Awaitable, Callable

from shared.adapters.events.cloudevents import Event

CONCURRENCY = 32
"""Objects told of at the same time."""

BYTES_MAX = 16 * 1024 * 1024
"""Of event data that waits or is on its way; one event more may be in it."""


class Outbox:
    """Sends events: many objects side by side, those of one object one after the other.

    An object that takes long holds up no other, and a newer event takes the place of one that still waits. A sink that
    takes nothing at all holds up whoever puts, and so the watch.

    Args:
        send: Sends one event, and raises nothing.
        group: Where the sending runs.
    """

    def __init__(self, send: Callable[[Event], Awaitable[None]], group: asyncio.TaskGroup) -> None:
        self._send = send
        self._group = group
        self._waiting: dict[str, Event] = {}
        self._on_the_way: dict[str, asyncio.Task[None]] = {}
        self._bytes = 0
        self._freed = asyncio.Event()

    async def put(self, uid: str, event: Event) -> None:
        """Have an object's newest event sent; returns once there is room for it.

        Args:
            uid: The object's.
            event: Takes the place of one of the same object that still waits.
        """
        while self._bytes > BYTES_MAX:
            self._freed.clear()
            await self._freed.wait()
        outdated = self._waiting.pop(uid, None)
        self._bytes += len(event.data) - (len(outdated.data) if outdated else 0)
        self._waiting[uid] = event
        self._send_on()

    def cancel(self) -> None:
        """Give up what is on its way; what waits stays unsent."""
        for task in self._on_the_way.values():
            task.cancel()

    def _send_on(self) -> None:
        while len(self._on_the_way) < CONCURRENCY:
            uid = next((one for one in self._waiting if one not in self._on_the_way), None)
            if uid is None:
                return
            task = self._group.create_task(self._send_one(uid, self._waiting.pop(uid)))
            self._on_the_way[uid] = task

    async def _send_one(self, uid: str, event: Event) -> None:
        await self._send(event)
        del self._on_the_way[uid]
        self._bytes -= len(event.data)
        self._freed.set()
        self._send_on()
