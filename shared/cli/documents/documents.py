"""Kubernetes objects from a YAML file, as kubectl would read them, one document at a time.

JSON, which `kubectl get -o json` prints, is read as JSON. YAML is read by the C library, which overflows its stack on
deep nesting: a document that may be deep is measured first.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import yaml
from yaml import MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

from shared.core.jsontext import DEPTH_MAX, is_nested_deeper
from shared.errors import TtlError

DOCUMENT_MAX = 16_777_216
"""Characters of one document; a List of many objects is one."""

_LEVELS_MAX = DEPTH_MAX + 2
"""A List and its items stand around an object."""

_TOO_DEEP = f"expected at most {DEPTH_MAX} levels in one object"

VALUES_MAX = 1_000_000
"""Values of a document that has aliases, with each alias written out."""

_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT = "tag:yaml.org,2002:str"
_DOCUMENT = re.compile(r"---(\s|$)")
_INDENT = re.compile(r"^[ \t?:-]*", re.MULTILINE)
_EMPTY = re.compile(r"\{\s*\}|\[\s*\]")


class _KubernetesLoader(_Safe):  # type: ignore[misc]
    """YAML as Kubernetes means it: a time without quotes is text, as it is in JSON."""


_KubernetesLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(stream: IO[str], name: str) -> Iterator[dict[str, Any]]:
    """Every object of every document, those inside Lists too; empty documents are passed over.

    Args:
        stream: The YAML or JSON.
        name: Of the file, for messages.

    Raises:
        TtlError: It is no YAML, or a document is no object, has a key twice, or is too large or too deep; the message
            names the file and the document.
    """
    number = 0
    try:
        for text in _split(stream, name):
            for document in _load(text, f"{name}, document {number + 1}"):
                number += 1
                if _may_be_deeper(text) and is_nested_deeper(document, _LEVELS_MAX):
                    raise TtlError(f"{name}, document {number}: {_TOO_DEEP}")
                if document is not None:
                    yield from _objects(document, f"{name}, document {number}")
    except yaml.YAMLError as error:
        raise TtlError(f"{name}: expected YAML, got {_describe(error)} in document {number + 1}") from None
    except (UnicodeDecodeError, RecursionError, ValueError, TypeError) as error:  # TypeError: a key that is a list
        raise TtlError(f"{name}: expected YAML, got {error}") from None


def _may_be_deeper(text: str) -> bool:
    """Whether a value can be deeper than `_check` measured: by aliases, or since it is JSON."""
    return "*" in text or text.lstrip().startswith("{")


def _load(text: str, place: str) -> Iterator[Any]:
    if text.lstrip().startswith("{"):
        try:
            document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_json)
        except json.JSONDecodeError:  # YAML may begin with a bracket, too
            yield from _load_yaml(text, place)
        else:
            yield document
    else:
        yield from _load_yaml(text, place)


def _load_yaml(text: str, place: str) -> Iterator[Any]:
    _check(text, place)
    loader = _KubernetesLoader(text)
    try:
        while (event := loader.get_event()) is not None:
            if isinstance(event, yaml.DocumentStartEvent):
                yield _Document(loader).read(loader.get_event())
    finally:
        loader.dispose()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        raise yaml.YAMLError(f"{next(key for key in keys if keys.count(key) > 1)!r} twice in one mapping")
    return mapping


def _no_json(constant: str) -> Any:
    raise json.JSONDecodeError("no JSON", constant, 0)


class _Document:
    """Values straight from the parser's events, in half the time that nodes take; a key comes once.

    Args:
        loader: It has begun a document.
    """

    def __init__(self, loader: Any) -> None:
        self._loader, self._next = loader, loader.get_event
        self._anchors: dict[str, Any] = {}

    def read(self, event: Any) -> Any:
        """The value that begins with an event.

        Raises:
            yaml.YAMLError: A key comes twice, or an alias has no anchor before it.
        """
        kind = type(event)
        if kind is ScalarEvent:
            value = self._scalar(event)
        elif kind is MappingStartEvent:
            value = self._mapping(event)
        elif kind is SequenceStartEvent:
            value = []
            while type(inner := self._next()) is not SequenceEndEvent:
                value.append(self.read(inner))
        elif event.anchor in self._anchors:
            return self._anchors[event.anchor]
        else:
            problem = f"alias {event.anchor!r} without an anchor that ends before it"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        if event.anchor:
            if event.anchor in self._anchors:
                problem = f"anchor {event.anchor!r} twice in one document"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
            self._anchors[event.anchor] = value
        return value

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.tag is None:
            if not event.implicit[0]:  # it has quotes, or is a block
                return text
            if (known := _KubernetesLoader.yaml_implicit_resolvers.get(text[:1])) is None:
                return text
            for implied, pattern in known:
                if pattern.match(text):
                    tag = implied
                    break
            else:
                return text
        else:
            tag = _TEXT if event.tag == "!" else event.tag
        if tag == _TEXT:
            return text
        return self._loader.construct_object(yaml.ScalarNode(tag, text, event.start_mark, event.end_mark))

    def _mapping(self, start: Any) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        following, read = self._next, self.read
        merged: list[Any] = []
        while type(event := following()) is not MappingEndEvent:
            if type(event) is ScalarEvent and event.value == "<<" and event.implicit[0]:
                value = read(following())
                merged += reversed(value) if isinstance(value, list) else [value]
                continue
            key = self._scalar(event) if type(event) is ScalarEvent and not event.anchor else read(event)
            if key in mapping:
                raise yaml.MarkedYAMLError(problem=f"{key!r} twice in one mapping", problem_mark=start.start_mark)
            mapping[key] = read(following())
        if not merged:
            return mapping
        if not all(isinstance(one, dict) for one in merged):
            raise yaml.MarkedYAMLError(problem="`<<` without a mapping", problem_mark=start.start_mark)
        return {key: value for one in [*merged, mapping] for key, value in one.items()}


def _split(stream: IO[str], name: str) -> Iterator[str]:
    """The text of each document; a line that begins with `---` always begins one, even in a block of text."""
    lines: list[str] = []
    size, has_content = 0, False
    for line in stream:
        if has_content and line.startswith("---") and _DOCUMENT.match(line):
            yield "".join(lines)
            lines, size, has_content = [], 0, False
        # Before its `---` a document may have comments and directives.
        has_content = has_content or not line.startswith(("#", "%", "\n"))
        lines.append(line)
        size += len(line)
        if size > DOCUMENT_MAX:
            raise TtlError(f"{name}: expected at most {DOCUMENT_MAX} characters in one document")
    if lines:
        yield "".join(lines)


def _check(text: str, place: str) -> None:
    """Whether the C library may read a document, and what it comes to."""
    if _depth_at_most(text) > _LEVELS_MAX:
        depth = 0
        for event in yaml.parse(text, Loader=_KubernetesLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _LEVELS_MAX:
                raise TtlError(f"{place}: {_TOO_DEEP}")
    if "*" in text and "&" in text:
        _check_aliases(text, place)


def _depth_at_most(text: str) -> int:
    """A bound that needs no parser: a level takes a column of indentation, or an open bracket.

    Where a list has the indentation of the key above, two levels share a column.
    """
    text = _EMPTY.sub("", text)
    brackets = text.count("{") + text.count("[")
    return brackets + 2 * max(map(len, _INDENT.findall(text)), default=0) + 2


def _check_aliases(text: str, place: str) -> None:
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=_KubernetesLoader):
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


def _describe(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())


def _objects(document: Any, place: str) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        raise TtlError(f"{place}: expected a Kubernetes object, got {type(document).__name__}")
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        for number, item in enumerate(items, start=1):
            yield from _objects(item, f"{place}, item {number}")
    else:
        yield document


def open_file(path: str) -> IO[str]:
    """A file to read text from.

    Raises:
        TtlError: It cannot be opened.
    """
    try:
        return Path(path).open(encoding="utf-8")
    except OSError as error:
        raise TtlError(f"{path}: {error.strerror}") from None
