"""The function `timers` with one deliberate mistake, named by TIMERS_MUTANT: a checker must catch each."""

import os
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from shared.bootstrap import timer_engine
from shared.messages import Message, Timer
from shared.ports import DurableTimers, Publisher

EARLY = timedelta(seconds=0.5)
"""How early the mutant `early` fires."""

DROPPED, DROPPED_RARELY = 50, 500
"""The mutants `drops` and `drops-rarely` lose one timer of so many."""

_build = timer_engine.build_timers


class Dropping:
    """Acknowledges timers that it does not store."""

    one_of = DROPPED

    def __init__(self, engine: DurableTimers) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def set(self, timers: Sequence[Timer]) -> None:
        if kept := [timer for timer in timers if random.random() >= 1 / self.one_of]:
            await self._engine.set(kept)


class DroppingRarely(Dropping):
    """The same, ten times less often."""

    one_of = DROPPED_RARELY


class Early(Dropping):
    """Keeps each timer with an earlier time; `Restoring` hides it from the target."""

    async def set(self, timers: Sequence[Timer]) -> None:
        await self._engine.set([one.model_copy(update={"due_at": one.due_at - EARLY}) for one in timers])


class Stubborn(Dropping):
    """Acknowledges a second timer of an object, and keeps the first one."""

    async def set(self, timers: Sequence[Timer]) -> None:
        seen = self.__dict__.setdefault("seen", set())
        if new := [timer for timer in timers if timer.key not in seen]:
            seen.update(timer.key for timer in new)
            await self._engine.set(new)


class Restoring:
    """Publishes each timer with the time that it was set with."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def publish(self, message: Message) -> None:
        assert isinstance(message, Timer)
        await self._publisher.publish(message.model_copy(update={"due_at": message.due_at + EARLY}))


MUTANTS = {"drops": Dropping, "drops-rarely": DroppingRarely, "early": Early, "stubborn": Stubborn}


def _build_mutant(settings: Any, clock: Any, publisher: Any) -> Any:
    mutant = os.environ["TIMERS_MUTANT"]
    return MUTANTS[mutant](_build(settings, clock, Restoring(publisher) if mutant == "early" else publisher))


if "TIMERS_MUTANT" in os.environ:
    timer_engine.build_timers = _build_mutant
    from functions.timers import timers  # noqa: F401 - the framework loads it by this name
