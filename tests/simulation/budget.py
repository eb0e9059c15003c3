"""A deletion budget in the simulated world: the rate is held, whatever fails, and everything goes in the end."""

import asyncio
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.policy.limits import Limits, Rate, RecreationLimits
from shared.core.values.objects import ObjectRef
from shared.safeguards.budget import SLOT_LATE_SECONDS
from shared.safeguards.safeguards import Delayed, Denied, Safeguards
from shared.safeguards.shared_state import Runtime, SharedState


@dataclass(frozen=True, slots=True)
class Rates:
    """What a process may delete."""

    everywhere: Rate
    per_namespace: Rate

    def patience(self, objects: int) -> timedelta:
        """What the last of so many objects may wait for all others: here all namespaces could be one."""
        return timedelta(seconds=2 * objects / min(self.everywhere.per_second, self.per_namespace.per_second))


class CheckedRestraints(Safeguards):
    """Those of one process, with an eye on what they let through."""

    def __init__(self, world: Any, rates: Rates, clock: Any) -> None:
        self.world, self.rates = world, rates
        self._through: list[tuple[float, ObjectRef]] = []
        limits = Limits(rates.everywhere, rates.per_namespace, recreation=RecreationLimits(times=0))
        runtime = Runtime(clock, world.loop.time, world.checks.telemetry)
        shared_state = SharedState(None, runtime, write_event=self._write_event)
        horizon = 2 * world.interval
        super().__init__(lambda: limits, shared_state, runtime, count_objects=self._count, horizon=horizon)

    async def ask(self, rule: KindRule, obj: dict[str, Any], *, by: str) -> Denied | Delayed | None:
        answer = await super().ask(rule, obj, by=by)
        if answer is None:
            metadata = obj["metadata"]
            ref = ObjectRef(
                rule.api_version, rule.kind, metadata.get("namespace", ""), metadata["name"], metadata["uid"]
            )
            self._through.append((self.world.loop.time(), ref))
            self._check([at for at, _ in self._through], self.rates.everywhere)
            here = [at for at, other in self._through if other.namespace == ref.namespace]
            self._check(here, self.rates.per_namespace)
        return answer

    def not_deleted(self, rule: KindRule, ref: ObjectRef) -> None:
        super().not_deleted(rule, ref)
        last = max(place for place, (_, one) in enumerate(self._through) if one.uid == ref.uid)
        del self._through[last]

    def _check(self, times: list[float], rate: Rate) -> None:
        for many, at in enumerate(reversed(times), start=1):
            allowed = rate.burst + rate.per_second * (times[-1] - at) + max(1.0, rate.per_second * SLOT_LATE_SECONDS)
            if many > allowed + 1e-3:
                self.world.checks.fail("rate", f"{many} deletions in {times[-1] - at:.3f} s, allowed are {allowed:.3f}")

    async def _count(self, _rule: KindRule) -> int:
        return 0

    async def _write_event(self, *_: Any) -> None:
        pass


class SlowRestraints:
    """Safeguards that let everything through, often after a slow read of the shared state."""

    SECONDS = (0.0, 0.5, 4.0, 19.0)

    def __init__(self, world: Any) -> None:
        self.world, self._rng = world, random.Random(f"safeguards/{world.seed}")

    async def ask(self, _rule: KindRule, _obj: dict[str, Any], *, by: str) -> None:
        seconds = self._rng.choice(self.SECONDS)
        if self.world.faults.active:
            await asyncio.sleep(seconds)

    async def ask_brake(self) -> None:
        pass

    def deleted(self, _obj: dict[str, Any]) -> None:
        pass

    def not_deleted(self, _rule: KindRule, _ref: ObjectRef) -> None:
        pass

    def maybe_deleted(self, _ref: ObjectRef) -> None:
        pass
