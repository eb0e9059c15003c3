"""An asyncio loop without a machine under it: time jumps to the next timer, and who runs next is the seed's choice."""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVarTuple

Ts = TypeVarTuple("Ts")


class DeadlockError(AssertionError):
    """Every task waits, and nothing will ever wake one."""


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number.

    asyncio keeps tasks in sets, and cancels those of a TaskGroup in the order of the set. By default that order follows
    the addresses in memory, so it differs between versions of Python.
    """

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """Deterministic: the same seed runs the same callbacks in the same order at the same times, on each Python.

    What is ready runs in random order, which asyncio does not promise against and code must not rely on. There are no
    sockets and no threads; `select` is where the loop would sleep, so there the clock moves.
    """

    _ready: deque[asyncio.Handle]

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seconds = 0.0
        self._order = random.Random(f"order/{seed}")
        self._selector = self
        self._clock_resolution = 1e-9
        numbers = itertools.count()
        self.set_task_factory(lambda loop, coro, **options: NumberedTask(next(numbers), coro, loop=loop, **options))

    def time(self) -> float:
        return self._seconds

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("nothing is ready and nothing is scheduled")
        self._seconds += timeout
        return []

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        self._ready.pop()
        self._ready.insert(self._order.randrange(len(self._ready) + 1), handle)
        return handle

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
