"""A DeletingPolicy of Kyverno as a rule: its CEL conditions become `when`, where they read the object alone."""

import re
from typing import Any

from shared.cli.importers.imported import Imported, Source, expect_list, expect_mapping, expect_mappings, expect_text
from shared.core.expressions import ExpressionError, compile_expression
from shared.core.objects import get_text, quote
from shared.core.policy.conditions import VARIABLES
from shared.core.ttl.durations import format_duration, parse_go_duration

_AGE = re.compile(
    r"(?:time\.)?now\(\)\s*-\s*(?:timestamp\()?object\.metadata\.creationTimestamp\)?\s*>=?\s*duration\(['\"]([^'\"]+)['\"]\)"
)


def import_deleting(source: Source, imported: Imported) -> None:
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
    conditions = None if spec.get("variables") or spec.get("matchConditions") else _read_conditions(spec, source)
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


def _read_conditions(spec: dict[str, Any], source: Source) -> tuple[dict[str, str], dict[str, str]] | None:
    """The age of `match`, and the `when` of a rule; None if a rule cannot have one of the conditions."""
    age: dict[str, str] = {}
    clauses: list[str] = []
    for at, condition in expect_mappings(spec.get("conditions"), source.at("spec.conditions")):
        text = " ".join(expect_text(condition.get("expression"), f"{at}.expression").split())
        if found := _AGE.fullmatch(text):
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
