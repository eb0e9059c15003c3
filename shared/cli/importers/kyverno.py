"""Kyverno: the TTL label, CleanupPolicy, ClusterCleanupPolicy and DeletingPolicy.

A cleanup policy becomes one rule for each filter of its `match`. The CEL conditions of a DeletingPolicy become `when`,
where they read the object alone.

Source: kyverno/website content/en/docs/writing-policies/cleanup.md, docs/policy-types/deleting-policy;
kyverno/kyverno pkg/controllers/ttl/utils.go.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from shared.cli.importers.imported import (
    ClusterReads,
    Imported,
    ImportedConfigError,
    Source,
    expect_list,
    expect_mapping,
    expect_mappings,
    expect_text,
    import_annotated,
    note_absolute,
)
from shared.core.policy.matching import VARIABLES
from shared.core.values.expressions import ExpressionError, compile_expression
from shared.core.values.objects import get_text, quote
from shared.core.values.timing import format_duration, parse_duration, parse_go_duration

CLEANUP = ("ClusterCleanupPolicy", "CleanupPolicy")
DELETING = ("DeletingPolicy", "NamespacedDeletingPolicy")
TTL = "cleanup.kyverno.io/ttl"

WANTED = ClusterReads(
    collections=(
        *(
            (f"kyverno.io/{version}/{kind.lower()[:-1]}ies", kind, {})
            for version in ("v2", "v2beta1")
            for kind in CLEANUP
        ),
        *(
            (f"policies.kyverno.io/{version}/{kind.lower()[:-1]}ies", kind, {})
            for version in ("v1", "v1beta1", "v1alpha1")
            for kind in DELETING
        ),
    ),
    every_kind={"labelSelector": TTL},
)

_CLEANUP_AGE = re.compile(
    r"\{\{\s*time_since\(\s*'',\s*'?\{?\{?\s*target\.metadata\.creationTimestamp\s*\}?\}?'?,\s*''\s*\)\s*\}\}"
)
_PHASE = re.compile(r"\{\{\s*(?:target|request\.object)\.status\.phase\s*(?:\|\|\s*'[^']*'\s*)?\}\}")
_LONGER = {"GreaterThan", "GreaterThanOrEquals", "DurationGreaterThan", "DurationGreaterThanOrEquals"}
_EQUAL = {"Equals", "AnyIn", "In"}
_PHASES = {"Succeeded": "succeeded", "Failed": "failed"}
_FIELDS = {"kinds", "namespaces", "namespaceSelector", "selector", "annotations", "operations"}

_DELETING_AGE = re.compile(
    r"(?:time\.)?now\(\)\s*-\s*(?:timestamp\()?object\.metadata\.creationTimestamp\)?\s*>=?\s*duration\(['\"]([^'\"]+)['\"]\)"
)


def read(sources: Sequence[Source], imported: Imported) -> None:
    """Add a rule for each TTL that objects have, and for each policy that a rule can express.

    Raises:
        ImportedConfigError: A policy is invalid.
    """
    imported.differences += [
        "the TTL counts from the finish of an object, not from its creation or from when Kyverno saw the label",
        "a rule deletes an object when it is due, so up to one period of the schedule earlier than a policy of Kyverno",
        "an object that has not finished is kept, also if a policy of Kyverno matches it",
    ]
    relative = [one for one in sources if not _is_absolute(one)]
    import_annotated(relative, imported, field="labels", key=TTL, name="kyverno", read=read_ttl)
    for source in sources:
        if _is_absolute(source):
            note_absolute(imported, source, field="labels", key=TTL)
        if source.kind in CLEANUP:
            _import_cleanup(source, imported)
        elif source.kind in DELETING:
            _import_deleting(source, imported)


def read_ttl(value: str) -> str:
    """Read a relative TTL of Kyverno.

    Raises:
        ValueError: It is no duration.
    """
    try:
        found = parse_duration(value)
    except ValueError:
        found = parse_go_duration(value)
    return format_duration(max(found, timedelta(0)))


def _is_absolute(source: Source) -> bool:
    value = str((source.get("metadata.labels") or {}).get(TTL, ""))
    return len(value) >= len("2023-10-04") and value[:4].isdigit() and value[4:5] == "-"


class _NoEquivalentError(Exception):
    """A part of a policy that no rule can have: its place, and what it is."""


def _import_cleanup(source: Source, imported: Imported) -> None:
    """Add rules for a policy; note it if a part of it has no equivalent.

    Raises:
        ImportedConfigError: The policy is invalid.
    """
    spec = expect_mapping(source.get("spec"), source.at("spec"))
    name = get_text(source.document, "metadata.name")
    try:
        fields = _read_cleanup_conditions(spec.get("conditions"), source.at("spec.conditions"))
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


def _read_cleanup_conditions(conditions: Any, place: str) -> dict[str, Any]:
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
        if _CLEANUP_AGE.fullmatch(key) and operator in _LONGER:
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


def _import_deleting(source: Source, imported: Imported) -> None:
    """Add a rule for a policy; note it if a part of it has no equivalent.

    Raises:
        ImportedConfigError: The policy is invalid.
    """
    spec = expect_mapping(source.get("spec"), source.at("spec"))
    name = get_text(source.document, "metadata.name")
    constraints = expect_mapping(spec.get("matchConstraints"), source.at("spec.matchConstraints"))
    kinds = _kinds_of(constraints, source, imported)
    parts = {"namespaces": _namespaces_of(constraints, source), "labels": constraints.get("objectSelector")}
    found = {name: value for name, value in parts.items() if value}
    conditions = (
        None if spec.get("variables") or spec.get("matchConditions") else _read_deleting_conditions(spec, source)
    )
    if not kinds:
        imported.note(source.at("spec.matchConstraints"), f"policy {name} is left out: none of its kinds can finish")
    elif conditions is None:
        text = "a condition that `match` and `when` cannot have, or variables: write the rule by hand"
        imported.note(source.at("spec"), f"policy {name} is left out: it has {text}")
    else:
        age, fields = conditions
        propagation = spec.get("deletionPropagationPolicy")
        fields |= {"ttl": "0s", **({"propagation": propagation} if propagation else {})}
        imported.add(f"kyverno-{name}", {"kinds": kinds, **found, **age}, **fields)
        schedule = quote(spec.get("schedule"))
        imported.note(source.at("spec.schedule"), f"{schedule} is not needed: an object is deleted when it is due")


def _read_deleting_conditions(spec: dict[str, Any], source: Source) -> tuple[dict[str, str], dict[str, str]] | None:
    """The age of `match`, and the `when` of a rule; None if a rule cannot have one of the conditions."""
    age: dict[str, str] = {}
    clauses: list[str] = []
    for at, condition in expect_mappings(spec.get("conditions"), source.at("spec.conditions")):
        text = " ".join(expect_text(condition.get("expression"), f"{at}.expression").split())
        if found := _DELETING_AGE.fullmatch(text):
            age["age"] = format_duration(parse_go_duration(found[1]))
        elif _is_ours(text):
            clauses.append(f"({text})")
        else:
            return None
    return age, {"when": " && ".join(clauses)} if clauses else {}


def _kinds_of(constraints: dict[str, Any], source: Source, imported: Imported) -> list[str]:
    place = source.at("spec.matchConstraints.resourceRules")
    words: list[str] = []
    for at, rule in expect_mappings(constraints.get("resourceRules"), place):
        groups = [one for one in expect_list(rule.get("apiGroups"), f"{at}.apiGroups") if one not in ("", "*")] or [""]
        resources = expect_list(rule.get("resources"), f"{at}.resources")
        words += [f"{one}.{group}" if group and one != "*" else one for one in resources for group in groups]
    return imported.finishing(words, place)


def _namespaces_of(constraints: dict[str, Any], source: Source) -> dict[str, Any]:
    namespaces: dict[str, Any] = {}
    if source.kind == "NamespacedDeletingPolicy":
        namespaces["names"] = [get_text(source.document, "metadata.namespace")]
    if selector := constraints.get("namespaceSelector"):
        namespaces["selector"] = selector
    return namespaces


def _is_ours(text: str) -> bool:
    """Whether an expression reads nothing but what a `when` may read."""
    try:
        compile_expression(text, returns="bool", variables=VARIABLES)
    except (ExpressionError, ValueError):
        return False
    return True
