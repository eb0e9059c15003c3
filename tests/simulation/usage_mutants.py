"""Systems with one deliberate mistake each about unused objects: the checks have to find each of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shared.core.references.reference import TargetNames
from shared.core.usage import decide_unused, passes
from shared.core.usage.decide_unused import UnusedFacts
from shared.core.usage.passes import Observation, Pass
from shared.core.values.objects import ANNOTATION_DOMAIN
from shared.evaluation.usage_reader import UsageFound, UsageReader
from shared.usecases.usage import deletion
from shared.usecases.usage.deletion import UsageDeletion, UsageStorage
from shared.usecases.usage.handler import UsageHandler
from shared.usecases.usage.marks import UsageMarks
from tests.simulation.usage_world import UsageMutant, UsageSimCluster

_look, _find_carriers = UsageReader.look, UsageReader.find_carriers
_try_store, _prove_archived = UsageStorage._try_store, UsageHandler.prove_archived


def _is_first(reader: Any) -> bool:
    """Return whether the pass that starts is the first of its tick: each tick has a reader of its own."""
    is_first = not hasattr(reader, "has_looked")
    reader.has_looked = True
    return is_first


async def _look_once(self: Any, names: TargetNames, **options: Any) -> UsageFound:
    """The second pass is the first one again."""
    if is_first := _is_first(self):
        self.found = await _look(self, names, **options)
    found: UsageFound = self.found
    return found if is_first else _as(found, found.of, started_at=found.of.completed_at)


async def _look_bravely(self: Any, names: TargetNames, **options: Any) -> UsageFound:
    """A LIST that fails has no objects."""
    found = await _look(self, names, **options)
    versions = {name: version or "1" for name, version in found.of.versions.items()}
    return _as(found, Pass(found.of.started_at, found.of.completed_at, versions))


async def _look_elsewhere(self: Any, names: TargetNames, **options: Any) -> UsageFound:
    """The second pass lists another namespace."""
    if _is_first(self):
        return await _look(self, names, **options)
    found = await _look(self, names, namespaces=["elsewhere"])
    return _as(replace(found, namespaces=options["namespaces"]), found.of)


def _as(found: UsageFound, of: Pass, **changes: Any) -> UsageFound:
    return replace(found, of=replace(of, **changes), by_namespace={})


def _forget_cron_jobs(self: Any, served: Any) -> Any:
    return tuple(one for one in _find_carriers(self, served) if one.kind != "CronJob")


async def _store_anyway(self: Any, *about: Any) -> bool:
    """An archive that does not acknowledge is no reason to keep an object."""
    await _try_store(self, *about)
    return True


async def _prove_once(self: Any, target: Any, rule: Any) -> Any:
    """What an archive has acknowledged of an object once counts for its later versions."""
    proofs, uid = self.cluster.world.archive.proofs, target.obj["metadata"]["uid"]
    if uid not in proofs:
        proofs[uid] = await _prove_archived(self, target, rule)
    return replace(proofs[uid], seen_at=target.read_at)


def _find_unarchived_once(_obj: Any, rule: Any, _policy: Any, proof: Any) -> str:
    if rule.archive is None:
        return ""
    acknowledged = proof and proof.fact.acknowledged_at
    return "" if acknowledged and proof.seen_at >= acknowledged + rule.archive.grace else "not stored"


def _is_wanted(*_about: Any) -> bool:
    return True


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
    "old-confirmation": _mutant("window", patches=[(deletion, "CONFIRMED_SECONDS_MAX", 1e6)]),
    "kind-forgotten": _mutant("window", "used", patches=[(UsageReader, "find_carriers", _forget_cron_jobs)]),
    "delete-without-version": _mutant("held", cluster=_WithoutVersion),
    "hold-ignored": _mutant("held", cluster=_HoldIgnored),
    "mark-stays": _mutant("reset", patches=[(UsageMarks, "remove", _nothing)]),
    "unannounced": _mutant("announced", patches=[(UsageMarks, "_is_announced", _always)]),
    "ttl-ignored": _mutant("ttl", patches=[(decide_unused, "add", lambda at, ttl: at)]),
    "changes-ignored": _mutant("ttl", patches=[(decide_unused, "is_changed_since_mark", lambda obj: False)]),
    "opt-out-ignored": _mutant(
        "opted-out", patches=[(one, "is_opted_in", _is_wanted) for one in (decide_unused, passes)]
    ),
    "archive-ignored": _mutant(
        "archived",
        patches=[(UsageStorage, "_try_store", _store_anyway), (deletion, "find_unarchived", lambda *_: "")],
    ),
    "archive-of-another-version": _mutant(
        "archived",
        patches=[
            (UsageHandler, "prove_archived", _prove_once),
            (deletion, "find_unarchived", _find_unarchived_once),
        ],
    ),
    "never-used-is-unused": _mutant("never-used", patches=[(UnusedFacts, "may_be_unused", True)]),
    "use-not-recorded": _mutant("unrecorded", patches=[(Observation, "proves_use", False)]),
    "never-marks": _mutant("left", patches=[(UsageMarks, "_mark", _nothing)]),
    "never-deletes": _mutant("left", patches=[(UsageDeletion, "delete", _nothing)]),
}
