"""One simulated world: a seed decides everything that happens in it."""

import asyncio
import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from shared.adapters.config.kind_files import read_catalogue
from shared.core.kinds.rule import Catalogue, KindRule
from shared.devserver.apiserver.resources import Object, Resource
from shared.devserver.apiserver.store import Store
from shared.devserver.apiserver.writes import WriteOptions, merge_patch
from tests.simulation.budget import Rates
from tests.simulation.checks import Checks
from tests.simulation.clocks import Clocks
from tests.simulation.director import Director
from tests.simulation.faults import Faults
from tests.simulation.forger import Forger
from tests.simulation.history import History
from tests.simulation.memory_timers import TimerStore
from tests.simulation.mutants import NONE, Mutant
from tests.simulation.operators import NoOperators, Operators
from tests.simulation.process import NoProcess, Process
from tests.simulation.proofs import ProofForger
from tests.simulation.quotas import QuotaController
from tests.simulation.simbroker import SimBroker
from tests.simulation.simcluster import Server
from tests.simulation.source import Source
from tests.simulation.users import RESOURCES, TRAIN_JOBS, Users
from tests.simulation.virtualloop import VirtualLoop

CATALOGUE = read_catalogue()
TRAIN_JOB_VERSIONS = ("v1alpha1", "v1beta1")


def _rule_here(rule: KindRule) -> KindRule:
    if rule.kind != TRAIN_JOBS.kind:
        return rule
    return rule.model_copy(update={"api_versions": tuple(f"{TRAIN_JOBS.group}/{one}" for one in TRAIN_JOB_VERSIONS)})


_HERE = {(resource.group, resource.kind) for resource in RESOURCES.values()}
_KINDS = Catalogue(tuple(_rule_here(rule) for rule in CATALOGUE.rules if (rule.group, rule.kind) in _HERE))
_KNOWN = Catalogue((*_KINDS.rules, *CATALOGUE.of("apps", "ReplicaSet")))


class World:
    """Everything there is.

    Attributes:
        catalogue: The rules of the kinds that are enabled.
        known_kinds: The same, and those of the kinds of other owners.
        steps: Seconds of troubles, instead of what the seed says.
        rates: The deletion budget; None for none.
        slow_safeguards: Whether what stands between a due object and its DELETE may take 19 s to answer.
        proven: Whether objects are deleted without a read where a proof holds.
        hanging: A kind whose LISTs time out for ever, as if its conversion webhook hung; empty for none.
        remembers: Whether the watch stands in the process and fills its memory.
        concurrency: Of a sweep.
        interval: Between two sweeps.
        page_limit: Objects on a page of a LIST.
        actor: The client that writes at this moment; no client writes across an await.
    """

    catalogue, known_kinds = _KINDS, _KNOWN

    def __init__(
        self,
        seed: int,
        *,
        mutant: Mutant = NONE,
        steps: int | None = None,
        rates: Rates | None = None,
        slow_safeguards: bool = False,
        proven: bool = False,
        hanging: str = "",
    ) -> None:
        self.proven = proven or mutant.proofs is not None
        self.seed, self.mutant, self.steps, self.rates = seed, mutant, steps, rates
        self.slow_safeguards = slow_safeguards
        self.rng = random.Random(seed)
        self.trace: list[str] = []
        self.actor = ""
        self.stopped = False
        self.loop = VirtualLoop(seed)
        self.clocks = Clocks(self.loop, self.rng)
        self.faults = Faults(self.rng, hangs_for_good=hanging)
        self.interval = timedelta(seconds=self.rng.choice((60, 60, 120, 300)))
        self.concurrency = self.rng.choice((1, 3, 16))
        self.page_limit = self.rng.choice((3, 5, 10))
        synchronous = self.rng.random() < 0.5 or mutant.needs_memory
        self.remembers = synchronous and (self.rng.random() < 0.8 or mutant.needs_memory)
        self.history = History(self.loop.time)
        self.checks = Checks(self)
        self.store = self._store()
        self.server = Server(self)
        self.broker = SimBroker(self, synchronous=synchronous)
        self.timer_store = TimerStore()
        self.users = Users(self)
        self.source = Source(self)
        self.store.listeners += [self.checks.changed, self.source.changed]
        self.forger = ProofForger(self) if self.proven else Forger(self)
        drawn = self.rng.random() < 0.5
        with_policy = drawn if mutant.needs_policy is None else mutant.needs_policy
        self.operators: Operators | NoOperators = Operators(self) if with_policy else NoOperators()
        self.quotas = QuotaController(self) if with_policy else None
        self.process: Process | NoProcess = NoProcess()
        self.director = Director(self)

    def run(self) -> "World":
        """Live through it; raises the first Violation."""
        try:
            self.loop.run_until_complete(self._live())
        finally:
            self._close()
        if self.checks.violation:
            raise self.checks.violation
        return self

    @property
    def trace_hash(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def note(self, who: str, what: str) -> None:
        """A line of the trace."""
        self.trace.append(f"{self.loop.time():10.3f} {who:>9} {what}")

    def stop(self) -> None:
        self.stopped = True
        self.director.stop()

    @contextmanager
    def acting(self, who: str) -> Iterator[None]:
        """Whose writes these are."""
        before, self.actor = self.actor, who
        try:
            yield
        finally:
            self.actor = before
            self.history.settle()

    def boot(self) -> None:
        self.process = Process(self)
        self.process.boot()

    def patch(self, resource: Resource, namespace: str, name: str, change: Object, options: WriteOptions) -> None:
        self.store.patch(resource, namespace, name, merge_patch(change), options)

    def is_served(self, kind: str) -> bool:
        return any(resource.kind == kind for resource in self.store.resources)

    def serve_train_jobs(self, versions: tuple[str, ...]) -> None:
        """Serve them in these versions and no others."""
        for version in TRAIN_JOB_VERSIONS:
            resource = replace(TRAIN_JOBS, version=version)
            if version in versions:
                self.store.resources.add(resource)
            else:
                self.store.resources.remove(resource)

    def _store(self) -> Store:
        uids = (f"uid-{number}" for number in range(1_000_000))
        return Store(self.clocks.server, new_uid=lambda: next(uids))

    async def _live(self) -> None:
        await self.director.direct()

    def _close(self) -> None:
        async def cancel_all() -> None:
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # a task that ends may start another one
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        self.loop.run_until_complete(cancel_all())
        self.loop.close()
