"""Translate those JMESPath expressions of kube-janitor's rules that a rule of a policy can have."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from shared.cli.importers.imported import escaped

_TEXT = r"(?:'(?P<raw>[^'\\]*)'|`\"(?P<literal>[^\"\\]*)\"`)"
_KEY = r"(?:(?P<key>[A-Za-z_][A-Za-z0-9_]*)|\"(?P<quoted>[^\"\\]+)\")"
_PATH = r"(?P<path>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+)"
_LABEL = re.compile(rf"metadata\.(?P<field>labels|annotations)\.{_KEY}(?:\s*(?P<is>==|!=)\s*{_TEXT})?")
_EQUALS = re.compile(rf"{_PATH}\s*(?P<is>==|!=)\s*{_TEXT}")
_CALL = re.compile(rf"(?P<call>starts_with|ends_with|contains)\(\s*{_PATH}\s*,\s*{_TEXT}\s*\)")
_METHODS = {"starts_with": "startsWith", "ends_with": "endsWith", "contains": "contains"}
_GLOBS = {"starts_with": "{}*", "ends_with": "*{}", "contains": "*{}*"}


@dataclass
class Conditions:
    """The conditions of an expression.

    Attributes:
        match: Parts of the `match` of a rule.
        clauses: CEL expressions, all of which must hold.
    """

    match: dict[str, Any] = field(default_factory=dict)
    clauses: list[str] = field(default_factory=list)

    @property
    def when(self) -> str:
        """The `when` of a rule; empty if it needs none."""
        return " && ".join(self.clauses)


def find_conditions(expression: str) -> Conditions | None:
    """Translate an expression; None if a rule cannot have it.

    Understood: `&&` of tests of labels, annotations, the namespace, and texts at a path.
    """
    found = Conditions()
    is_understood = all(_add(_strip(term), found) for term in expression.split("&&"))
    return found if is_understood else None


def _strip(term: str) -> str:
    """A term without brackets around all of it; `!` stays in front."""
    term = term.strip()
    negation = "!" if term.startswith("!") and not term.startswith("!=") else ""
    inner = term.removeprefix(negation).strip()
    while inner.startswith("(") and inner.endswith(")") and inner.count("(") == 1:
        inner = inner[1:-1].strip()
    return negation + inner


def _add(term: str, found: Conditions) -> bool:
    is_negated, term = term.startswith("!"), term.removeprefix("!")
    if label := _LABEL.fullmatch(term):
        return _add_label(label, found, is_negated=is_negated)
    if is_negated:
        return False
    if equals := _EQUALS.fullmatch(term):
        return _add_test(equals, found, "{path} " + equals["is"] + " {text}", "{}" if equals["is"] == "==" else "")
    if call := _CALL.fullmatch(term):
        return _add_test(call, found, "{path}." + _METHODS[call["call"]] + "({text})", _GLOBS[call["call"]])
    return False


def _add_label(found: re.Match[str], conditions: Conditions, *, is_negated: bool) -> bool:
    key, value = found["key"] or found["quoted"], _text_of(found)
    if found["field"] == "annotations":
        if is_negated or found["is"] == "!=":
            return False
        return _set(conditions.match.setdefault("annotations", {}), key, "?*" if value is None else escaped(value))
    if value is not None and is_negated:
        return False
    labels = conditions.match.setdefault("labels", {})
    if value is None:
        # A label with an empty value is false in JMESPath.
        is_set = [{"key": key, "operator": "Exists"}, {"key": key, "operator": "NotIn", "values": [""]}]
        tests = [{"key": key, "operator": "DoesNotExist"}] if is_negated else is_set
        labels.setdefault("matchExpressions", []).extend(tests)
        return True
    if found["is"] == "!=":
        labels.setdefault("matchExpressions", []).append({"key": key, "operator": "NotIn", "values": [value]})
        return True
    return _set(labels.setdefault("matchLabels", {}), key, value)


def _add_test(found: re.Match[str], conditions: Conditions, clause: str, glob: str) -> bool:
    path, value = found["path"], _text_of(found) or ""
    if path.startswith("_context") or path == "metadata.creationTimestamp":
        return False
    if path == "metadata.namespace" and glob:
        name = glob.format(escaped(value))
        return _set(conditions.match.setdefault("namespaces", {}), "names", [name])
    parts = ["object", *path.split(".")]
    if path not in ("metadata.name", "metadata.namespace"):  # every object has them
        conditions.clauses += [f"has({'.'.join(parts[:count])})" for count in range(2, len(parts) + 1)]
    conditions.clauses.append(clause.format(path=".".join(parts), text=json.dumps(value)))
    return True


def _set(where: dict[str, Any], key: str, value: Any) -> bool:
    """Set a value that was not set before."""
    return bool(where.setdefault(key, value) == value)


def _text_of(found: re.Match[str]) -> str | None:
    return found["raw"] if found["raw"] is not None else found["literal"]
