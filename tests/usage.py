"""Secrets and ConfigMaps as the API server sends their metadata, passes over the carriers, and a policy."""

import json
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from shared.adapters.config.policy_file import parse_policy
from shared.core.decision.namespaces import Namespace, namespace_of
from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import Policy
from shared.core.policy.usage import CONFIG_MAPS, SECRETS
from shared.core.references.reference import Reference, TargetKind
from shared.core.usage.decide_unused import UnusedContext
from shared.core.usage.mark import (
    ANNOUNCEMENT_MANAGER,
    DELETED_AFTER,
    MARK_MANAGER,
    UNUSED_HASH,
    UNUSED_SINCE,
    USE_MANAGER,
    USED_AT,
    hash_foreign_writes,
)
from shared.core.usage.passes import Observation, Pass
from shared.core.values.objects import ANNOTATION_DOMAIN, ANNOUNCED_LABEL, ObjectRef, format_instant, parse_instant
from tests.builders import LONG_AGO, NOW, ago, annotated, having, namespace, shipped_kinds

DAY = 86_400
POD = ObjectRef("v1", "Pod", "ci", "web", "")
VERSIONS = {"pods": "7", "jobs.batch": "7"}


def written(at: datetime | str, manager: str = "kubectl", fields: Any = None) -> dict[str, Any]:
    """One entry of managedFields."""
    time = at if isinstance(at, str) else format_instant(at)
    fields = {"f:data": {".": {}, "f:key": {}}} if fields is None else fields
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def config_map(
    name: str = "web-7f9c2", *, marked: datetime | str | None = None, used: datetime | None = LONG_AGO, **metadata: Any
) -> dict[str, Any]:
    """The metadata of a ConfigMap that exists for a month, and that a pass saw used when it was new."""
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": "ci",
            "uid": "5c6b0d2e",
            "resourceVersion": "42",
            "creationTimestamp": format_instant(LONG_AGO),
            "managedFields": [written(LONG_AGO)],
            **metadata,
        },
    }
    obj = obj if used is None else having_use(obj, used)
    return obj if marked is None else having_mark(obj, marked)


def having_use(
    obj: dict[str, Any], at: datetime = LONG_AGO, *, by: str = USE_MANAGER, written_at: datetime | None = None
) -> dict[str, Any]:
    """The object with a record of use; the arguments are those of `having_mark`."""
    return _with_annotations(obj, {USED_AT: format_instant(at)}, by, written_at or at)


def having_mark(
    obj: dict[str, Any], at: datetime | str, *, by: str = MARK_MANAGER, written_at: datetime | None = None
) -> dict[str, Any]:
    """The object with a mark.

    Args:
        obj: The object.
        at: The instant in the mark.
        by: The field manager that wrote it.
        written_at: When it was written; None for the instant in the mark.
    """
    try:
        since = at if isinstance(at, datetime) else parse_instant(at)
        values = {UNUSED_SINCE: format_instant(since), UNUSED_HASH: hash_foreign_writes(obj, since)}
    except ValueError:  # a malformed mark
        values = {UNUSED_SINCE: str(at), UNUSED_HASH: ""}
    stored_at = written_at or (at if isinstance(at, datetime) else LONG_AGO)
    return _with_annotations(obj, values, by, stored_at)


def having_announcement(
    obj: dict[str, Any], at: datetime, *, by: str = ANNOUNCEMENT_MANAGER, written_at: datetime | None = None
) -> dict[str, Any]:
    """The object with the announcement of its deletion; the arguments are those of `having_mark`."""
    announced = _with_annotations(obj, {DELETED_AFTER: format_instant(at)}, by, written_at or at - timedelta(minutes=5))
    return having(announced, "metadata.labels", {**get_labels(obj), ANNOUNCED_LABEL: "true"})


def get_labels(obj: dict[str, Any]) -> dict[str, Any]:
    return obj["metadata"].get("labels") or {}


def _with_annotations(obj: dict[str, Any], values: dict[str, str], by: str, at: datetime) -> dict[str, Any]:
    """The object with annotations, and with the entry of the client that wrote them."""
    fields: Any = {"f:metadata": {"f:annotations": {f"f:{ANNOTATION_DOMAIN}/{name}": {} for name in values}}}
    entries = [one for one in obj["metadata"]["managedFields"] if one.get("manager") != by]
    entries.append(written(at.replace(microsecond=0), by, fields))
    return having(annotated(obj, **values), "metadata.managedFields", entries)


def secret(name: str = "token", *, of_type: str = "Opaque", **metadata: Any) -> dict[str, Any]:
    return config_map(name, **metadata) | {"kind": "Secret", "type": of_type}


def kind_of(obj: Any) -> KindRule:
    return SECRETS if isinstance(obj, dict) and obj.get("kind") == "Secret" else CONFIG_MAPS


def refer(
    *, problem: str = "", kind: TargetKind = TargetKind.CONFIG_MAP, name: str = "web-7f9c2", is_field: bool = True
) -> Reference:
    return Reference(kind, "ci", name, "spec.volumes[0].configMap.name", POD, problem=problem, is_field=is_field)


def passed(
    started: datetime,
    *references: Reference,
    seconds: float = 5,
    versions: dict[str, str] | None = None,
    problem: str = "",
) -> Observation:
    """What a pass observed that started at an instant."""
    ended = started + timedelta(seconds=seconds)
    return Observation(Pass(started, ended, VERSIONS if versions is None else versions, problem), references)


def two_passes(*references: Reference) -> tuple[Observation, ...]:
    """Two complete passes of the last minute."""
    return passed(ago(40)), passed(ago(20), *references)


def unused_policy(**fields: Any) -> Policy:
    """A policy with one rule, by which unused objects of the namespace ci are deleted after a day."""
    rule = {"name": "rotated", "match": {"kinds": ["configmaps", "secrets"]}, "unused": {"ttl": "1d"}} | fields
    return parse_policy(_json({"rules": [rule]}), shipped_kinds(), name="policy.yaml")


def archived_policy(*, url: str = "file:///archive", **archive: Any) -> Policy:
    """A policy that has unused ConfigMaps archived before they are deleted."""
    rule = {"name": "rotated", "match": {"kinds": ["configmaps"]}, "unused": {"ttl": "1d"}}
    text = _json({"archives": {"main": {"url": url}}, "rules": [rule | {"archive": {"to": "main"} | archive}]})
    return parse_policy(text, shipped_kinds(), name="policy.yaml")


def _json(value: Any) -> str:
    return json.dumps(value)


@cache
def _policy() -> Policy:
    return unused_policy()


def opted_in(**annotations: Any) -> Namespace:
    return namespace_of(namespace("ci", **{"unused": "true"} | annotations))


def context(*observations: Observation, policy: Policy | None = None, of: Namespace | None = None) -> UnusedContext:
    """What a decision knows: a policy, an opted-in namespace, and two passes if no others are given."""
    return UnusedContext(policy or _policy(), of or opted_in(), observations or two_passes())


LONG_UNUSED = NOW - timedelta(days=2)
"""A mark whose TTL is over."""
