"""Systems with one deliberate mistake each about unused objects: the checks have to find each of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shared.core.objects import ANNOTATION_DOMAIN
from shared.core.unused import decide_unused
from shared.core.unused.passes import Pass
from shared.evaluation.usage import UsageFound, UsageReader
from shared.usecases import usage_deletion
from shared.usecases.usage_deletion import UsageDeletion
from shared.usecases.usage_marks import UsageMarks
from tests.simulation.usage_world import UsageMutant, UsageSimCluster

_look, _find_carriers = UsageReader.look, UsageReader.find_carriers


async def _look_once(self: Any, *, namespace: str = "") -> UsageFound:
    """The second pass is the first one again."""
    if not namespace:
        self.cluster.world.found = await _look(self)
    found: UsageFound = self.cluster.world.found
    at = found.of.completed_at
    return found if not namespace else replace(found, of=replace(found.of, started_at=at, completed_at=at))


async def _look_bravely(self: Any, *, namespace: str = "") -> UsageFound:
    """A LIST that fails has no objects."""
    found = await _look(self, namespace=namespace)
    versions = {name: version or "1" for name, version in found.of.versions.items()}
    return replace(found, of=Pass(found.of.started_at, found.of.completed_at, versions))


async def _look_elsewhere(self: Any, *, namespace: str = "") -> UsageFound:
    """The second pass lists another namespace."""
    return await _look(self, namespace="elsewhere" if namespace else "")


def _forget_cron_jobs(self: Any, served: Any) -> Any:
    return tuple(one for one in _find_carriers(self, served) if one.kind != "CronJob")


async def _nothing(*_about: Any, **_options: Any) -> None:
    pass


async def _always(*_about: Any, **_options: Any) -> bool:
    return True


class _WithoutVersion(UsageSimCluster):
    def options(self, uid: str, version: str, propagation: str) -> Any:
        return replace(super().options(uid, version, propagation), resource_version=None)


class _HoldIgnored(UsageSimCluster):
    def seen(self, obj: dict[str, Any]) -> dict[str, Any]:
        metadata = obj["metadata"]
        kept = {key: one for key, one in metadata.get("annotations", {}).items() if key != f"{ANNOTATION_DOMAIN}/hold"}
        return obj | {"metadata": metadata | {"annotations": kept}}


def _mutant(*rules: str, cluster: type[UsageSimCluster] | None = None, patches: Any = ()) -> UsageMutant:
    return UsageMutant(frozenset(rules), tuple(patches), cluster)


USAGE_MUTANTS: Mapping[str, UsageMutant] = {
    "one-pass": _mutant("window", "used", patches=[(UsageReader, "look", _look_once)]),
    "failed-list-is-empty": _mutant("window", "used", patches=[(UsageReader, "look", _look_bravely)]),
    "another-namespace": _mutant("window", "used", patches=[(UsageReader, "look", _look_elsewhere)]),
    "old-confirmation": _mutant("window", patches=[(usage_deletion, "CONFIRMED_SECONDS_MAX", 1e6)]),
    "kind-forgotten": _mutant("window", "used", patches=[(UsageReader, "find_carriers", _forget_cron_jobs)]),
    "delete-without-version": _mutant("held", cluster=_WithoutVersion),
    "hold-ignored": _mutant("held", cluster=_HoldIgnored),
    "mark-stays": _mutant("reset", patches=[(UsageMarks, "remove", _nothing)]),
    "unannounced": _mutant("announced", patches=[(UsageMarks, "_is_announced", _always)]),
    "ttl-ignored": _mutant("ttl", patches=[(decide_unused, "add", lambda at, ttl: at)]),
    "changes-ignored": _mutant("ttl", patches=[(decide_unused, "is_changed_since", lambda obj, at: False)]),
    "opt-out-ignored": _mutant("opted-out", patches=[(decide_unused, "is_opted_in", lambda match, namespace: True)]),
    "never-marks": _mutant("left", patches=[(UsageMarks, "_mark", _nothing)]),
    "never-deletes": _mutant("left", patches=[(UsageDeletion, "delete", _nothing)]),
}
