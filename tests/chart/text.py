"""The text of a Helm template, from a tree whose branches have conditions."""

import json
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any

import yaml

from tests.chart.conditions import Term, expression
from tests.chart.variants import Branch, Choice, Leaf

NAMESPACE = "namespace-of-the-release"
VERSION = "version-of-the-release"
IMAGE = "image-of-the-release"
SCHEDULE = "schedule-of-the-sweep"
TOKENS = {
    NAMESPACE: ".Release.Namespace",
    VERSION: ".Chart.AppVersion",
    IMAGE: 'include "ttl-after-finished.image" .',
    SCHEDULE: 'include "ttl-after-finished.sweep-schedule" .',
    **{
        f"name-of-{name}": f'include "ttl-after-finished.{name}-name" .'
        for name in ("settings", "kinds", "policy", "references")
    },
}
"""Texts that stand for expressions of the template."""
LABELS = "labels-of-the-release"
"""A key that stands for the labels that all objects have."""
DATA = {f"data-of-{name}": f"ttl-after-finished.{name}" for name in ("settings", "kinds", "policy", "references")}
"""Texts that stand for the data of a ConfigMap, and the template that makes it."""


def documents(nodes: Iterable[Any], when: list[Term] | None) -> str:
    """Objects with one condition, each with its separator."""
    return "\n".join(_conditional(when, [line for node in nodes for line in ("---", *_lines(node, 0))])) + "\n"


def block(node: Any) -> str:
    """A mapping alone."""
    return "\n".join(_lines(node, 0)) + "\n"


def _lines(node: Any, depth: int) -> list[str]:
    """The lines of a mapping or a list that is not empty."""
    match node:
        case Leaf(value=dict() as value):
            return [line for key, one in value.items() for line in _pair(key, Leaf(one), depth)]
        case Leaf(value=list() as value):
            return [line for one in value for line in _item(Leaf(one), depth)]
        case Branch(entries=entries):
            return _entries(entries, depth)
    raise AssertionError(node)


def _entries(entries: Iterable[tuple[str | None, list[Term] | None, Any]], depth: int) -> list[str]:
    """The lines of all entries; neighbours with the same condition share it, as do neighbouring choices."""
    lines: list[str] = []
    for when, group in groupby(entries, key=itemgetter(1)):
        members: list[str] = []
        for conditions, same in groupby(group, key=lambda entry: _conditions(entry[2])):
            found = [(key, node) for key, _, node in same]
            members += _cases(conditions, found, depth) if conditions else _all(found, depth)
        lines += _conditional(when, members)
    return lines


def _conditions(node: Any) -> list[list[Term] | None] | None:
    return node.conditions if isinstance(node, Choice) else None


def _cases(conditions: list[list[Term] | None], members: list[tuple[str | None, Any]], depth: int) -> list[str]:
    """Members that are choices with the same conditions."""
    lines: list[str] = []
    for index, when in enumerate(conditions):
        words = ["else"] * (index > 0) + ([f"if {expression(when)}"] if when else [])
        lines += [f"{{{{- {' '.join(words)} }}}}", *_all([(key, node.cases[index][1]) for key, node in members], depth)]
    return [*lines, "{{- end }}"]


def _all(members: Iterable[tuple[str | None, Any]], depth: int) -> list[str]:
    """Members of a mapping, and those of a list, which have no key."""
    return [line for key, node in members for line in (_item(node, depth) if key is None else _pair(key, node, depth))]


def _pair(key: str, node: Any, depth: int) -> list[str]:
    if key == LABELS:
        return [f'{" " * depth}{{{{- include "ttl-after-finished.labels" . | nindent {depth} }}}}']
    label = f"{' ' * depth}{_plain(key)}:"
    if _is_empty_or_scalar(node):
        return _scalar(label, node.value, depth + 2)
    return [label, *_lines(node, depth + 2)]


def _item(node: Any, depth: int) -> list[str]:
    if _is_empty_or_scalar(node):
        return _scalar(f"{' ' * depth}-", node.value, depth + 2)
    first, *others = _lines(node, depth + 2)
    return [f"{' ' * depth}- {first.lstrip()}", *others]


def _is_empty_or_scalar(node: Any) -> bool:
    return isinstance(node, Leaf) and not (node.value and isinstance(node.value, dict | list))


def _conditional(when: list[Term] | None, lines: list[str]) -> list[str]:
    return lines if when is None else [f"{{{{- if {expression(when)} }}}}", *lines, "{{- end }}"]


def _scalar(label: str, value: Any, depth: int) -> list[str]:
    if isinstance(value, str) and value in DATA:
        return [label, f'{{{{- include "{DATA[value]}" . | nindent {depth} }}}}']
    if isinstance(value, str) and value in TOKENS:
        return [f"{label} {{{{ {TOKENS[value]} | quote }}}}"]
    if isinstance(value, str) and "\n" in value and _fits_a_block(value):
        ending = "" if value.endswith("\n") else "-"
        indented = [f"{' ' * depth}{line}".rstrip() for line in value.splitlines()]
        return [f"{label} |{ending}", *map(_escaped, indented)]
    return [f"{label} {_escaped(_plain(value))}"]


def _fits_a_block(text: str) -> bool:
    lines = text.splitlines()
    is_clean = all(line == line.rstrip() and "\t" not in line for line in lines)
    return is_clean and lines[0] == lines[0].lstrip() != "" and not text.endswith("\n\n")


def _plain(value: Any) -> str:
    if isinstance(value, str) and "\n" in value:
        return json.dumps(value)
    return yaml.safe_dump(value, width=1_000_000, default_flow_style=True).removesuffix("...\n").strip()


def _escaped(text: str) -> str:
    """As the template's text: braces are no expression, and the tokens are."""
    text = text.replace("{{", '{{ "{{" }}')
    for token, made in TOKENS.items():
        text = text.replace(token, f"{{{{ {made} }}}}")
    return text
