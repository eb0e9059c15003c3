"""Systems with one deliberate mistake each about deadlines: checks that catch none of them would be worth nothing."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ANNOTATION_DOMAIN
from shared.messages import Timer, TimersSet
from shared.ports import Snapshot
from shared.usecases.handler import Handled, Handler
from shared.usecases.sweep import Sweep
from tests.builders import having, without
from tests.simulation.deadline_world import DeadlineCluster, DeadlineMutant


class _Early(DeadlineCluster):
    def time_of(self, read_at: datetime) -> datetime:
        return read_at + timedelta(seconds=3)


class _ByLocalClock(DeadlineCluster):
    def time_of(self, read_at: datetime) -> datetime:
        at: datetime = self.world.clocks.local()
        return at


class _ClockNotRestarted(DeadlineCluster):
    """The deadline counts from the creation, whatever was resumed since."""

    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        if "startTime" not in obj.get("status", {}):
            return obj
        created = obj["metadata"]["creationTimestamp"]
        rest = [one for one in obj["status"].get("conditions", []) if (one["type"], one["status"]) != _RESUMED]
        return obj | {"status": obj["status"] | {"startTime": created, "conditions": rest}}


_RESUMED = ("Suspended", "False")


class _WithoutPreconditions(DeadlineCluster):
    def sent(self, patch: dict[str, Any]) -> dict[str, Any]:
        return without(without(patch, "metadata.uid"), "metadata.resourceVersion")


class _WithoutVersion(DeadlineCluster):
    def sent(self, patch: dict[str, Any]) -> dict[str, Any]:
        return without(patch, "metadata.resourceVersion")


class _AlwaysSuspends(DeadlineCluster):
    """A stop that does not end the run for those who wait for it."""

    def sent(self, patch: dict[str, Any]) -> dict[str, Any]:
        return having(patch, "spec", {"suspend": True}) if "spec" in patch else patch


class _HoldIgnored(DeadlineCluster):
    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        return _without_annotations(obj, "hold")


class _ExemptionIgnored(DeadlineCluster):
    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        return _without_annotations(obj, "exempt")


class _SuspensionIgnored(DeadlineCluster):
    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        if obj.get("kind") != "Job":
            return obj
        rest = [one for one in obj.get("status", {}).get("conditions", []) if one["type"] != "Suspended"]
        return having(having(obj, "spec.suspend", False), "status.conditions", rest)


class _StopsForgotten(DeadlineCluster):
    """The mark is not read, so a stop that a controller undoes is repeated without end."""

    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        return _without_annotations(obj, "deadline-exceeded", "stops", "stopped-generation")


class _NativeIgnored(DeadlineCluster):
    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        return without(obj, "spec.activeDeadlineSeconds") if "spec" in obj else obj


class _TimerLost(Handler):
    """An attempt that has to be repeated, or comes too early, sets no timer."""

    async def handle(self, timer: Timer) -> Handled | None:
        answer = await super().handle(timer)
        return None if isinstance(answer, TimersSet) else answer


class _NeverStops(Handler):
    async def handle(self, timer: Timer) -> Handled | None:
        return None


class _HotLoop(Handler):
    """Whatever happens, the timer is set again as it was."""

    async def handle(self, timer: Timer) -> Handled | None:
        await super().handle(timer)
        return TimersSet(timers=(timer.model_copy(),))


class _NoDeadlinesSwept(Sweep):
    async def _act(self, rule: KindRule, snapshot: Snapshot, work: Any) -> Any:
        return await work.handler.handle_listed(rule, snapshot, missed_before=work.missed_before)


def _without_annotations(obj: dict[str, Any], *names: str) -> dict[str, Any]:
    dropped = {f"{ANNOTATION_DOMAIN}/{name}" for name in names}
    annotations = obj["metadata"].get("annotations", {})
    rest = {name: text for name, text in annotations.items() if name not in dropped}
    return obj | {"metadata": obj["metadata"] | {"annotations": rest}}


def _mutant(*rules: str, **parts: Any) -> DeadlineMutant:
    return DeadlineMutant(rules=frozenset(rules), **parts)


DEADLINE_MUTANTS: Mapping[str, DeadlineMutant] = {
    "early-stop": _mutant("S1", cluster=_Early),
    "by-local-clock": _mutant("S1", cluster=_ByLocalClock),
    "clock-not-restarted": _mutant("S1", cluster=_ClockNotRestarted),
    "stop-without-preconditions": _mutant("S1", "S2", "S3", cluster=_WithoutPreconditions),
    "stop-without-version": _mutant("S1", "S3", cluster=_WithoutVersion),
    "always-suspends": _mutant("action", cluster=_AlwaysSuspends),
    "hold-ignored": _mutant("S3", cluster=_HoldIgnored),
    "exemption-ignored": _mutant("S3", cluster=_ExemptionIgnored),
    "suspension-ignored": _mutant("S3", cluster=_SuspensionIgnored),
    "native-ignored": _mutant("S3", cluster=_NativeIgnored),
    "stops-without-end": _mutant("loop", cluster=_StopsForgotten),
    "never-stops": _mutant("L1", enforcement=_NeverStops),
    "deadlines-not-swept": _mutant("L1", sweep=_NoDeadlinesSwept),
    "hot-loop": _mutant("storm", enforcement=_HotLoop),
    "timer-lost": _mutant("L1", enforcement=_TimerLost, sweep=_NoDeadlinesSwept),
}
