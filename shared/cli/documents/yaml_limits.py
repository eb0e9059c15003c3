"""Limits of a YAML document, checked before the C library reads it: that library overflows its stack on deep data."""

import re

import yaml

from shared.cli.documents.yaml_values import KubernetesLoader
from shared.core.jsontext import DEPTH_MAX
from shared.errors import TtlError

LEVELS_MAX = DEPTH_MAX + 2
"""The most levels of a document: an object in the items of a List."""

TOO_DEEP = f"expected at most {DEPTH_MAX} levels in one object"

VALUES_MAX = 1_000_000
"""The most values of a document with aliases, each alias counted with its values."""

_INDENT = re.compile(r"^[ \t?:-]*", re.MULTILINE)
_EMPTY = re.compile(r"\{\s*\}|\[\s*\]")


def check_limits(text: str, place: str) -> None:
    """Check the depth and the size of a document.

    Raises:
        TtlError: The document is nested too deeply, or its aliases make too many values.
    """
    if _depth_at_most(text) > LEVELS_MAX:
        depth = 0
        for event in yaml.parse(text, Loader=KubernetesLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > LEVELS_MAX:
                raise TtlError(f"{place}: {TOO_DEEP}")
    if "*" in text and "&" in text:
        _check_aliases(text, place)


def _depth_at_most(text: str) -> int:
    """Return an upper bound of the depth without a parser: a level takes a column of indentation or an open bracket.

    A list may have the indentation of the key above it; then two levels share a column.
    """
    text = _EMPTY.sub("", text)
    brackets = text.count("{") + text.count("[")
    return brackets + 2 * max(map(len, _INDENT.findall(text)), default=0) + 2


def _check_aliases(text: str, place: str) -> None:
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=KubernetesLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
        if total > VALUES_MAX:
            raise TtlError(f"{place}: expected at most {VALUES_MAX} values, with each alias written out")
