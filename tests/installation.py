"""Processes of one installation that delete, with shared safeguards."""

from datetime import timedelta

from shared.core.kinds.rule import Catalogue
from shared.core.policy.limits import Limits
from shared.core.values.objects import ref_of
from shared.evaluation.evaluator import Evaluator
from shared.messages import Purpose, SweepStep, Timer, TimersSet
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime, SharedState
from shared.usecases.expire import DELETION
from shared.usecases.handler import Handler
from tests.builders import JOB, NOW, POD, TRAINJOB, ago, job
from tests.fakes import FakeClock, FakeCluster, FakePublisher, FakeState, FakeTelemetry
from tests.sweeps import sweep_with

KINDS = Catalogue((JOB, POD, TRAINJOB))
INTERVAL = timedelta(minutes=10)


class Installation:
    """An installation: its processes share a cluster, a clock and a state."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster(self.clock)
        self.state = FakeState()
        self.message: list[tuple[str, str]] = []
        self.objects: int | Exception = 1_000

    def seconds(self):
        return (self.clock.now() - NOW).total_seconds()

    async def write_event(self, reason, message, level):
        self.message.append((reason, message))

    async def count(self, rule):
        if isinstance(self.objects, Exception):
            raise self.objects
        return self.objects

    def process(self, *, shared=True, by="expire", **limits):
        return Process(self, Limits(**limits), self.state if shared else None, by)


class Process:
    """A process that deletes."""

    def __init__(self, installation, limits, state, by):
        self.at, self.limits, self.telemetry = installation, limits, FakeTelemetry()
        clock = installation.clock
        runtime = Runtime(clock, installation.seconds, self.telemetry)
        shared_state = SharedState(state, runtime, write_event=installation.write_event, namespace="here")
        self.safeguards = Safeguards(
            lambda: self.limits, shared_state, runtime, count_objects=installation.count, horizon=2 * INTERVAL
        )
        self.expiry = Handler(
            DELETION,
            installation.cluster,
            KINDS,
            Evaluator(installation.cluster, KINDS),
            clock,
            self.telemetry,
            dry_run=False,
            by=by,
            safeguards=self.safeguards,
        )
        self.publisher = FakePublisher()
        self.sweeper = sweep_with(self.expiry, self.publisher, INTERVAL, concurrency=1)

    async def delete(self, name, *, uid="", namespace="ci", due_at=None, metadata=None):
        """Put a due Job of this name, and fire its timer."""
        obj = job(complete=ago(86_400), ttl=0, name=name, uid=uid or f"uid-{name}", namespace=namespace)
        obj["metadata"] |= metadata or {}
        self.at.cluster.put(obj)
        timer = Timer(ref=ref_of(obj), purpose=Purpose.EXPIRE, due_at=due_at or self.at.clock.now())
        return await self.expiry.handle(timer)

    async def sweep(self):
        self.publisher.published.clear()
        assert await self.sweeper.sweep(SweepStep()) is None
        return [timer for each in self.publisher.published if isinstance(each, TimersSet) for timer in each.timers]

    @property
    def last(self):
        return self.telemetry.verdicts()[-1]
