"""The process that runs the functions: the real use cases, behind the parsing and the statuses of the real adapters."""

import asyncio
import traceback
from collections.abc import Coroutine
from typing import Any

from shared.adapters.events.cloudevents import Event, event_of, parse_message, parse_object, parse_proof, parse_sweep
from shared.adapters.kubernetes.cluster import Memory
from shared.core.values.timing import horizon
from shared.errors import EventError, PermanentError, TryLaterError
from shared.messages import Message, Timer, TimersSet
from shared.ports import Publisher, Telemetry
from shared.safeguards.pace import Pace
from shared.usecases.enforce import ENFORCEMENT
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from shared.usecases.timers import schedule, set_timers
from tests.fakes import ReadClock
from tests.simulation.budget import SlowRestraints
from tests.simulation.calls import Invocation, invocation
from tests.simulation.evaluators import evaluated, evaluators_of
from tests.simulation.proofs import SimProofs
from tests.simulation.simtimers import SimTimers
from tests.sweeps import sweep_with

Answer = tuple[int, Event | None, float]


def pace_of(seed: int, telemetry: Telemetry) -> Pace:
    """The pace of a process; in a third of the seeds, of very few permits, so that most deletions wait for one."""
    return Pace(telemetry, 1 + seed % 4) if seed % 3 == 0 else Pace(telemetry)


class Process:
    """Everything that a kill -9 takes: in-flight work, the watch's memory, what is known of the API server's clock."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.clock = ReadClock(world.clocks.local)
        self.memory = Memory() if world.remembers else None
        self.publisher: Publisher = world.broker
        self.telemetry = world.checks.telemetry
        mutant = world.mutant
        self.cluster = mutant.cluster(world, self.memory)
        parts: dict[str, Any] = {"cluster": self.cluster, "catalogue": world.catalogue}
        self.evaluators = evaluators_of(world, self.cluster)
        parts |= {"clock": self.clock, "telemetry": self.telemetry, "dry_run": False}
        parts["pace"] = pace_of(world.seed, self.telemetry)
        if world.rates:
            parts["safeguards"] = mutant.safeguards(world, world.rates, self.clock)
        elif world.slow_safeguards:
            parts["safeguards"] = SlowRestraints(world)
        self.expiry = mutant.expiry(DELETION, **parts, **self._with_proofs("expire"))
        expiry = mutant.expiry(DELETION, **parts, **self._with_proofs("sweep"), by="sweep")
        self.enforcement = Handler(ENFORCEMENT, **parts, **self._with_proofs("expire"))
        self.watch_proofs = self._with_proofs("schedule")["proofs"]
        self.sweep = sweep_with(
            expiry, self.publisher, world.interval, concurrency=world.concurrency, make=mutant.sweep
        )
        self.timers = SimTimers(world, self.publisher, self.start)

    def _with_proofs(self, function: str) -> dict[str, Any]:
        evaluator, kind = self.evaluators[function], self.world.mutant.proofs or SimProofs
        proofs = kind(self.world, evaluator, self.cluster) if self.world.proven else None
        return {"evaluator": evaluator, "proofs": proofs}

    def boot(self) -> None:
        self.start(self.timers.run())

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something that dies with the process."""
        task = self.world.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def kill(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def call(self, function: str, event: Event) -> Answer:
        """An HTTP request to one function; a process that dies meanwhile resets the connection."""
        if self.world.process is not self:
            return 500, None, 0.0
        outcome: asyncio.Future[Answer] = self.world.loop.create_future()
        task = self.start(self._answer(function, event))

        def ended(done: asyncio.Task[Answer]) -> None:
            if not outcome.done():
                outcome.set_result((500, None, 0.0) if done.cancelled() else done.result())

        task.add_done_callback(ended)
        return await outcome

    async def _answer(self, function: str, event: Event) -> Answer:
        """Answer as `shared.adapters.events.answers` does; any error that is not a TtlError is a bug."""
        call = Invocation(function)
        invocation.set(call)
        evaluated.set(None)
        note = f"{event.type.rpartition('.')[2]} {event.subject}"
        try:
            reply = await getattr(self, f"_{function}")(event, call)
        except EventError as error:
            status, reply, retry_after = error.status, None, 0.0
        except PermanentError:
            status, reply, retry_after = 422, None, 0.0
        except TryLaterError as error:
            status, reply, retry_after = 503, None, error.retry_after_seconds
        except Exception:  # noqa: BLE001 - such an error is a bug that the simulation looks for
            self.world.checks.fail("bug", f"{function} on {event.data!r}:\n{traceback.format_exc()}")
            return 500, None, 0.0
        else:
            status, retry_after = 204 if reply is None else 200, 0.0
        self.world.note(function, f"{note} -> {status} {type(reply).__name__ if reply else ''}")
        self.world.checks.finished(call)
        return status, event_of(reply, source="simulation") if reply else None, retry_after

    async def _schedule(self, event: Event, _call: Invocation) -> Message | None:
        obj, evaluator = parse_object(event), self.evaluators["schedule"]
        return await schedule(
            obj,
            parse_proof(event),
            catalogue=self.world.catalogue,
            clock=self.clock,
            telemetry=self.telemetry,
            policy=evaluator.policy(),
            get_cached=evaluator.namespaces.get_cached,
            horizon=horizon(self.world.interval),
        )

    async def _timers(self, event: Event, _call: Invocation) -> None:
        await set_timers(
            parse_message(event, TimersSet),
            timers=self.timers,
            clock=ReadClock(self.world.clocks.timers),
            horizon=horizon(self.world.interval),
            telemetry=self.telemetry,
        )

    async def _expire(self, event: Event, call: Invocation) -> Message | None:
        timer = parse_message(event, Timer)
        call.uid, call.name = timer.ref.uid, f"{timer.ref.kind}/{timer.ref.namespace}/{timer.ref.name}"
        return await self.expiry.handle(timer)

    async def _enforce(self, event: Event, call: Invocation) -> Message | None:
        """No object here has a deadline: a sweep that could not read an object sets its timers of both purposes."""
        timer = parse_message(event, Timer)
        call.uid, call.name = timer.ref.uid, f"{timer.ref.kind}/{timer.ref.namespace}/{timer.ref.name}"
        return await self.enforcement.handle(timer)

    async def _sweep(self, event: Event, _call: Invocation) -> Message | None:
        return await self.sweep.sweep(parse_sweep(event))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task)
        if not task.cancelled() and task.exception():
            self.world.checks.fail("bug", "".join(traceback.format_exception(task.exception())))


class NoProcess:
    """Between a crash and the restart."""

    async def call(self, _function: str, _event: Event) -> Answer:
        return 500, None, 0.0
