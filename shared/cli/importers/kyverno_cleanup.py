"""A CleanupPolicy or a ClusterCleanupPolicy of Kyverno as rules: one for each filter of its `match`."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from shared.cli.importers.imported import (
    Imported,
    ImportedConfigError,
    Source,
    expect_list,
    expect_mapping,
    expect_mappings,
    expect_text,
)
from shared.core.objects import get_text, quote
from shared.core.ttl.durations import format_duration, parse_duration, parse_go_duration

_AGE = re.compile(
    r"\{\{\s*time_since\(\s*'',\s*'?\{?\{?\s*target\.metadata\.creationTimestamp\s*\}?\}?'?,\s*''\s*\)\s*\}\}"
)
_PHASE = re.compile(r"\{\{\s*(?:target|request\.object)\.status\.phase\s*(?:\|\|\s*'[^']*'\s*)?\}\}")
_LONGER = {"GreaterThan", "GreaterThanOrEquals", "DurationGreaterThan", "DurationGreaterThanOrEquals"}
_EQUAL = {"Equals", "AnyIn", "In"}
_PHASES = {"Succeeded": "succeeded", "Failed": "failed"}
_FIELDS = {"kinds", "namespaces", "namespaceSelector", "selector", "annotations", "operations"}


class _NoEquivalentError(Exception):
    """A part of a policy that no rule can have: its place, and what it is."""


def import_cleanup(source: Source, imported: Imported) -> None:
    """Add rules for a policy; note it if a part of it has no equivalent.

    Raises:
        ImportedConfigError: The policy is invalid.
    """
    spec = expect_mapping(source.get("spec"), source.at("spec"))
    name = get_text(source.document, "metadata.name")
    try:
        fields = _read_conditions(spec.get("conditions"), source.at("spec.conditions"))
        excluded = _read_exclude(spec.get("exclude"), source.at("spec.exclude"))
        filters = list(_filters_of(expect_mapping(spec.get("match"), source.at("spec.match")), source.at("spec.match")))
        matches = [_read_filter(one, place, source, imported) for place, one in filters]
    except _NoEquivalentError as error:
        imported.note(str(error), f"policy {name} is left out: write this part by hand")
        return
    if propagation := spec.get("deletionPropagationPolicy"):
        fields["propagation"] = propagation
    age = {"age": fields.pop("age")} if "age" in fields else {}
    for match in matches:
        if match["kinds"]:
            namespaces = {**match.get("namespaces", {}), **excluded}
            among = {"namespaces": namespaces} if namespaces else {}
            imported.add(f"kyverno-{name}", {**match, **among, **age}, **fields)
        else:
            imported.note(source.at("spec.match"), f"policy {name} is left out: none of its kinds can finish")
    if spec.get("context"):
        imported.note(source.at("spec.context"), "no equivalent: a rule reads only the object and its namespace")
    imported.note(
        source.at("spec.schedule"), f"{quote(spec.get('schedule'))} is not needed: an object is deleted when it is due"
    )


def _filters_of(match: dict[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The filters of `any`, or the only one of `all`."""
    together = list(expect_mappings(match.get("all"), f"{place}.all"))
    if len(together) > 1:
        raise _NoEquivalentError(f"{place}.all")
    for at, one in (*expect_mappings(match.get("any"), f"{place}.any"), *together):
        yield f"{at}.resources", expect_mapping(one.get("resources"), f"{at}.resources")


def _read_filter(resources: dict[str, Any], place: str, source: Source, imported: Imported) -> dict[str, Any]:
    for field in sorted(resources.keys() - _FIELDS):
        raise _NoEquivalentError(f"{place}.{field}")
    kinds = expect_list(resources.get("kinds"), f"{place}.kinds")
    words = [_kind_of(expect_text(one, f"{place}.kinds.{number}")) for number, one in enumerate(kinds)]
    match: dict[str, Any] = {"kinds": imported.finishing(words, f"{place}.kinds")}
    namespaces: dict[str, Any] = {}
    if resources.get("namespaces"):
        namespaces["names"] = expect_list(resources["namespaces"], f"{place}.namespaces")
    if source.kind == "CleanupPolicy":
        namespaces["names"] = [get_text(source.document, "metadata.namespace")]
    parts = {"selector": resources.get("namespaceSelector")}
    namespaces |= {name: expect_mapping(value, f"{place}.namespaceSelector") for name, value in parts.items() if value}
    parts = {"namespaces": namespaces, "labels": resources.get("selector"), "annotations": resources.get("annotations")}
    return match | {name: expect_mapping(value, place) for name, value in parts.items() if value}


def _kind_of(word: str) -> str:
    """A kind as the rules name it: `batch/v1/Job` is Job.batch, `v1/Pod` and `*/Pod` are Pod."""
    *group, kind = word.split("/")
    return f"{kind}.{group[0]}" if len(group) > 1 and group[0] != "*" else kind


def _read_exclude(exclude: Any, place: str) -> dict[str, Any]:
    """The `except` of the namespaces: only namespaces can be excluded."""
    if not exclude:
        return {}
    names: list[str] = []
    for at, resources in _filters_of(expect_mapping(exclude, place), place):
        if resources.keys() - {"namespaces", "kinds"} or not resources.get("namespaces"):
            raise _NoEquivalentError(at)
        names += expect_list(resources["namespaces"], f"{at}.namespaces")
    return {"except": names}


def _read_conditions(conditions: Any, place: str) -> dict[str, Any]:
    """The fields of a rule for the conditions: an age, and the outcomes."""
    fields: dict[str, Any] = {"ttl": "0s"}
    if not conditions:
        return fields
    conditions = expect_mapping(conditions, place)
    either = list(expect_mappings(conditions.get("any"), f"{place}.any"))
    if len(either) > 1:
        raise _NoEquivalentError(f"{place}.any")
    for at, condition in (*either, *expect_mappings(conditions.get("all"), f"{place}.all")):
        key, operator, value = str(condition.get("key")).strip(), condition.get("operator"), condition.get("value")
        phases = value if isinstance(value, list) else [value]
        if _AGE.fullmatch(key) and operator in _LONGER:
            fields["age"] = _age(value, f"{at}.value")
        elif _PHASE.fullmatch(key) and operator in _EQUAL and set(map(str, phases)) <= _PHASES.keys():
            fields["ttl"] = {_PHASES[str(phase)]: "0s" for phase in phases}
        else:
            raise _NoEquivalentError(f"{at}.key")
    return fields


def _age(value: Any, place: str) -> str:
    try:
        return format_duration(parse_go_duration(value))
    except ValueError as error:
        try:
            return format_duration(parse_duration(value) if isinstance(value, str) else timedelta(seconds=float(value)))
        except (ValueError, TypeError):
            raise ImportedConfigError(f"{place}: {error}") from None
