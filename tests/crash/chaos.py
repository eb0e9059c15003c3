"""Chaos for a timer engine: random timers, while all around it is killed.

    python -m tests.crash.chaos --minutes 1 --engine sqlite --seed 7

The real function `timers` runs in processes of its own. Writers set timers over HTTP, some again; a target
takes what fires, and sometimes refuses, hangs or is gone. Processes, servers and connections are killed at random. The
rules are those of `chaos_ledger`. A seed repeats the requests and the faults, not their timing.
"""

import argparse
import asyncio
import itertools
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import aiohttp

from shared.adapters.clock import SystemClock
from shared.adapters.events.cloudevents import event_of, to_http
from shared.core.values.objects import ObjectRef
from shared.messages import Purpose, Timer, TimersSet
from tests.crash.chaos_engines import CHAOS_ENGINES, ChaosEngine
from tests.crash.chaos_ledger import ChaosLedger
from tests.crash.chaos_target import Link, Target, serving
from tests.crash.timers_process import TimersProcess

WRITERS = 8
PAUSE_SECONDS = 0.05
"""The mean pause of a writer between two requests: the machine may have other work."""

ABORTED = 0.02
"""The part of the requests whose connection the writer resets before the answer."""

DRAIN_SECONDS = 120.0
"""How long to wait at the end: longer than the back-off of the longest outage."""

_KINDS = ("Job", "Pod", "TrainJob")
now = SystemClock().now


@dataclass
class Chaos:
    """One run.

    Attributes:
        drain_seconds: How long to wait at the end until all has fired.
        kills: How often each fault happened.
    """

    engine: ChaosEngine
    ledger: ChaosLedger
    target: Target
    sink: Link
    processes: list[TimersProcess]
    seed: int
    drain_seconds: float = DRAIN_SECONDS
    kills: Counter[str] = field(default_factory=Counter)

    async def run(self, seconds: float) -> None:
        """Start, make trouble, make peace, and wait until all has fired."""
        await asyncio.gather(*(self._start(process) for process in self.processes))
        tasks = [asyncio.create_task(self._write(number)) for number in range(WRITERS)]
        trouble = asyncio.create_task(self._trouble(time.monotonic() + seconds))
        try:
            await trouble
        finally:
            for task in (trouble, *tasks):
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [one for one in ended if isinstance(one, Exception)]
        assert not errors, errors
        await self._settle()

    async def _settle(self) -> None:
        """Restart all, and wait for what is missing, which may wait for its back-off."""
        for process in self.processes:
            await process.end(signal.SIGTERM)
            await self._start(process)
        until = time.monotonic() + self.drain_seconds
        while self.ledger.lost() and time.monotonic() < until:
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)  # what must not arrive may arrive now
        self.ledger.close()

    async def _start(self, process: TimersProcess) -> None:
        await process.start()
        await process.until_ready()

    async def _trouble(self, until: float) -> None:
        chance = random.Random(f"trouble/{self.seed}")
        faults: list[Callable[[random.Random], Awaitable[None]]] = [
            *(self._kill_process, self._kill_process, self._drop_sink),
            *(self._refuse, self._hang, self._close_sink),
        ]
        if self.engine.link:
            faults += [self._kill_server, self._kill_server, self._drop_server]
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, chance.uniform(0.3, 2.0)))
            fault = chance.choice(faults)
            self.kills[fault.__name__.strip("_").replace("_", " ")] += 1
            await fault(chance)

    async def _kill_process(self, chance: random.Random) -> None:
        process = chance.choice(self.processes)
        await process.end(signal.SIGKILL)
        await asyncio.sleep(chance.choice((0.0, 0.5)))
        await self._start(process)

    async def _kill_server(self, chance: random.Random) -> None:
        await self.engine.kill_server()
        await asyncio.sleep(chance.choice((0.0, 0.5, 2.0)))
        await self.engine.start_server()

    async def _drop_server(self, _: random.Random) -> None:
        assert self.engine.link
        self.engine.link.drop()

    async def _drop_sink(self, _: random.Random) -> None:
        self.sink.drop()

    async def _close_sink(self, chance: random.Random) -> None:
        await self.sink.close()
        await asyncio.sleep(chance.uniform(0.1, 1.5))
        await self.sink.open()

    async def _refuse(self, chance: random.Random) -> None:
        self.target.refuses = True
        await asyncio.sleep(chance.uniform(0.1, 1.5))
        self.target.refuses = False

    async def _hang(self, chance: random.Random) -> None:
        self.target.answers.clear()
        await asyncio.sleep(chance.uniform(0.5, 3.0))
        self.target.answers.set()

    async def _write(self, number: int) -> None:
        """Set timers of ever new objects; set some again."""
        chance = random.Random(f"writer/{number}/{self.seed}")
        async with aiohttp.ClientSession() as session:
            for serial in itertools.count():
                ref = ObjectRef("batch/v1", chance.choice(_KINDS), f"ns-{number}", "job", f"{number}-{serial}")
                for step in range(chance.choice((1, 1, 2, 3, 4))):
                    due_at = now() + timedelta(seconds=chance.uniform(-0.1, 2.5), microseconds=step)
                    timer = Timer(ref=ref, purpose=Purpose.EXPIRE, due_at=due_at)
                    await self._ask(session, chance, timer)
                    await asyncio.sleep(chance.expovariate(1 / PAUSE_SECONDS))

    async def _ask(self, session: aiohttp.ClientSession, chance: random.Random, timer: Timer) -> None:
        headers, body = to_http(event_of(TimersSet(timers=(timer,)), source="chaos"))
        url = chance.choice(self.processes).url
        seconds = chance.uniform(0.0, 0.01) if chance.random() < ABORTED else 30.0
        uid, due_at = timer.ref.uid, timer.due_at
        self.ledger.asked(uid, due_at)
        is_acknowledged = False
        try:
            async with asyncio.timeout(seconds), session.post(url, data=body, headers=headers) as answer:
                is_acknowledged = answer.ok
        except aiohttp.ClientConnectorError:  # not sent
            await asyncio.sleep(0.05)
            return
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            pass
        except asyncio.CancelledError:
            self.ledger.unanswered(uid, due_at)
            raise
        if is_acknowledged:
            self.ledger.acknowledged(uid, due_at)
        else:
            self.ledger.unanswered(uid, due_at)


@asynccontextmanager
async def chaos(folder: Path, engine_name: str, seed: int, mutant: str = "") -> AsyncIterator[Chaos]:
    """A run, ready to start; its processes and servers end with the block."""
    async with CHAOS_ENGINES[engine_name](folder) as engine:
        ledger = ChaosLedger()
        target = Target(ledger, random.Random(f"target/{seed}"))
        async with serving(target) as sink:
            sink_url = f"http://127.0.0.1:{sink.port}/"
            logs = [folder / f"timers-{number}.log" for number in range(engine.processes)]
            processes = [TimersProcess(engine.address, sink_url, log) for log in logs]
            for process in processes if mutant else ():
                process.source, process.environment = "tests/crash/timers_mutant.py", {"TIMERS_MUTANT": mutant}
            try:
                yield Chaos(engine, ledger, target, sink, processes, seed)
            finally:
                for process in processes:
                    if process.process:
                        await process.end(signal.SIGKILL)


async def _main(options: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(prefix="ttl-chaos-") as folder:
        print(f"engine {options.engine}, seed {options.seed}, {options.minutes:g} minutes", flush=True)
        async with chaos(Path(folder), options.engine, options.seed, options.mutant) as run:
            await run.run(60 * options.minutes)
        print(run.ledger.summary())
        print(", ".join(f"{count} x {name}" for name, count in sorted(run.kills.items())))
        return not any(run.ledger.violations.values())


def main() -> None:
    """Run chaos; the exit code is 1 if a rule was violated."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to make trouble")
    parser.add_argument("--engine", choices=CHAOS_ENGINES, default="sqlite", help="the timer engine")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the requests and the faults")
    parser.add_argument("--mutant", default="", help="a mistake of tests/crash/timers_mutant.py, to see it caught")
    with suppress(KeyboardInterrupt):
        sys.exit(0 if asyncio.run(_main(parser.parse_args())) else 1)


if __name__ == "__main__":
    main()
