"""Read the Kubernetes objects of a YAML or JSON file one document at a time, as kubectl does.

JSON, as in the output of `kubectl get -o json`, is parsed as JSON. Everything else is parsed as YAML by the C library,
and its values are built from parser events, in half the time that nodes take.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import yaml
from yaml import MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

from shared.adapters.config.yaml_file import SafeLoader, describe_error, measure
from shared.core.values.jsontext import JSON_DEPTH_MAX, is_nested_deeper
from shared.core.values.objects import quote
from shared.errors import TtlError

DOCUMENT_MAX = 16_777_216
"""The most characters of one document; a List of many objects is one document."""

LEVELS_MAX = JSON_DEPTH_MAX + 2
"""The most levels of a document: an object in the items of a List."""

DOCUMENT_VALUES_MAX = 1_000_000
"""The most values of a document with aliases, each alias counted with its values."""

_BLOCK, _OVERLAP = 1_048_576, 256
"""Characters that are searched at once, and those that two blocks share."""

_TOO_DEEP = f"expected at most {JSON_DEPTH_MAX} levels in one object"
_DOCUMENT = re.compile(r"---(\s|$)")
_INDENT = re.compile(r"^[ \t?:-]*", re.MULTILINE)
_FEW_BRACKETS = LEVELS_MAX // 2
_LONG_INDENT = re.compile(rf"^[ \t?:-]{{{(LEVELS_MAX - _FEW_BRACKETS) // 2}}}", re.MULTILINE)
"""Indentation that may make a document with few brackets too deep."""

_EMPTY = re.compile(r"\{\s*\}|\[\s*\]")

_TEXT = "tag:yaml.org,2002:str"


def read_documents(
    stream: Iterable[str], name: str, *, only: re.Pattern[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield every object of every document, including the items of Lists; empty documents are skipped.

    Args:
        stream: The lines of the file.
        name: The name of the file, for messages.
        only: Only documents whose text has this pattern, and whose places are then unknown; None for all.

    Raises:
        TtlError: The file is not YAML, or a document is not an object, has a key twice, or is too large or too deep.
            The message names the file, and the document or the line.
    """
    number, line = 0, 1
    try:
        for text in filter(only.search if only else None, _split(stream, name)):
            for document in _load(text, f"{name}, document {number + 1} at line {line}"):
                number += 1
                place = f"{name}, document {number} at line {line}"
                if _may_be_deeper(text) and is_nested_deeper(document, LEVELS_MAX):
                    raise TtlError(f"{place}: {_TOO_DEEP}")
                if document is not None:
                    yield from _objects(document, place)
            line += text.count("\n")
    except yaml.YAMLError as error:
        raise TtlError(f"{name}, document {number + 1}: {describe_error(error, line)}") from None
    except UnicodeDecodeError as error:
        raise TtlError(f"{name}: {describe_error(error)}, after document {number}") from None
    except RecursionError:
        raise TtlError(f"{name}, document {number + 1} at line {line}: {_TOO_DEEP}") from None


def _may_be_deeper(text: str) -> bool:
    """Return whether a value can be deeper than `_check_limits` measured: it has aliases, or it is JSON."""
    return "*" in text or text.lstrip().startswith("{")


def _load(text: str, place: str) -> Iterator[Any]:
    if text.lstrip().startswith("{"):
        try:
            document = json.loads(text, object_pairs_hook=_unique, parse_constant=_reject)  # noqa: TID251 - a file of the operator
        except ValueError:  # YAML may begin with a bracket too, and its parser names the line of an error
            yield from _load_yaml(text, place)
        else:
            yield document
    else:
        yield from _load_yaml(text, place)


def _load_yaml(text: str, place: str) -> Iterator[Any]:
    _check_limits(text, place)
    loader = _KubernetesLoader(text)
    try:
        while (event := loader.get_event()) is not None:
            if isinstance(event, yaml.DocumentStartEvent):
                yield _YamlDocument(loader).read(loader.get_event())
    finally:
        loader.dispose()


def _check_limits(text: str, place: str) -> None:
    """Check a document before the C library reads it: that library overflows its stack on deep data.

    Raises:
        TtlError: The document is nested too deeply, or its aliases make too many values.
    """
    has_aliases = "*" in text and "&" in text
    if not has_aliases and _depth_at_most(text) <= LEVELS_MAX:
        return
    size = measure(text, levels_max=LEVELS_MAX, values_max=DOCUMENT_VALUES_MAX if has_aliases else DOCUMENT_MAX)
    if size.levels > LEVELS_MAX:
        raise TtlError(f"{place}: {_TOO_DEEP}")
    if has_aliases and size.values > DOCUMENT_VALUES_MAX:
        raise TtlError(f"{place}: expected at most {DOCUMENT_VALUES_MAX} values, with each alias written out")


def _depth_at_most(text: str) -> int:
    """Return an upper bound of the depth without a parser: a level takes a column of indentation or an open bracket.

    A list may have the indentation of the key above it; then two levels share a column.
    """
    brackets = text.count("{") + text.count("[")
    if brackets <= _FEW_BRACKETS and not _LONG_INDENT.search(text):
        return LEVELS_MAX  # nearly all documents: one search instead of a list of all lines
    text = _EMPTY.sub("", text)
    brackets = text.count("{") + text.count("[")
    return brackets + 2 * max(map(len, _INDENT.findall(text)), default=0) + 2


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key occurs twice")
    return mapping


def _reject(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _split(stream: Iterable[str], name: str) -> Iterator[str]:
    """Yield the text of each document; a line that begins with `---` starts one, even inside a block scalar."""
    lines: list[str] = []
    size, first, has_content = 0, 1, False
    for line in stream:
        if has_content and line.startswith("---") and _DOCUMENT.match(line):
            yield "".join(lines)
            lines, size, first, has_content = [], 0, first + len(lines), False
        # A document may have comments and directives before its `---`.
        has_content = has_content or not line.startswith(("#", "%", "\n"))
        lines.append(line)
        size += len(line)
        if size > DOCUMENT_MAX:
            raise TtlError(
                f"{name}: expected at most {DOCUMENT_MAX} characters in one document, got more from line {first}"
            )
    if lines:
        yield "".join(lines)


def _objects(document: Any, place: str) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        got = "a text" if isinstance(document, str) else quote(document)  # the text may be a Secret's
        raise TtlError(f"{place}: expected a Kubernetes object, got {got}")
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        for number, item in enumerate(items, start=1):
            yield from _objects(item, f"{place}, item {number}")
    else:
        yield document


def open_file(path: str) -> IO[str]:
    """Open a text file for reading.

    Raises:
        TtlError: The file cannot be opened.
    """
    try:
        return Path(path).open(encoding="utf-8")
    except OSError as error:
        raise TtlError(f"{path}: {error.strerror}") from None


def seekable(stream: IO[str]) -> IO[str]:
    """Return a stream that can be read twice: a pipe is copied to a temporary file.

    Raises:
        TtlError: The copy cannot be written.
    """
    if stream.seekable():
        return stream
    try:
        copy = tempfile.TemporaryFile("w+", encoding="utf-8", newline="")  # noqa: SIM115 - it ends with the process
        shutil.copyfileobj(stream, copy)
        copy.seek(0)
    except OSError as error:
        raise TtlError(f"standard input cannot be stored: {error}; set TMPDIR to a folder, or name a file") from error
    return copy


def has_pattern(stream: IO[str], pattern: re.Pattern[str]) -> bool:
    """Return whether a text has a pattern of at most `_OVERLAP` characters; the stream is read from its begin.

    Raises:
        UnicodeDecodeError: The text is not UTF-8.
    """
    before = ""
    while block := stream.read(_BLOCK):
        if pattern.search(before + block):
            return True
        before = block[-_OVERLAP:]
    return False


class _KubernetesLoader(SafeLoader):  # type: ignore[misc]
    """A YAML loader that reads a time without quotes as text, as Kubernetes does."""


_KubernetesLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


_REMEMBERED_CHARACTERS_MAX = 40
"""Texts of at most this length are remembered with their tag: keys, names and numbers, which recur in each object."""


def _find_tag(text: str) -> str:
    """Return the tag that a text without quotes implies."""
    known = _KubernetesLoader.yaml_implicit_resolvers.get(text[:1], ())
    return next((tag for tag, pattern in known if pattern.match(text)), _TEXT)


_tag_of = lru_cache(maxsize=4_096)(_find_tag)


class _YamlDocument:
    """The value of one YAML document; a key or an anchor that occurs twice is an error.

    Args:
        loader: A loader that has read the start of the document.
    """

    def __init__(self, loader: Any) -> None:
        self._loader, self._next = loader, loader.get_event
        self._anchors: dict[str, Any] = {}

    def read(self, event: Any) -> Any:
        """Read the value that begins with an event.

        Raises:
            yaml.YAMLError: A key or an anchor occurs twice, or an alias has no anchor before it.
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
            if not event.implicit[0]:  # a quoted scalar or a block scalar
                return text
            tag = _tag_of(text) if len(text) <= _REMEMBERED_CHARACTERS_MAX else _find_tag(text)
        else:
            tag = _TEXT if event.tag == "!" else event.tag
        if tag == _TEXT:
            return text
        try:
            return self._loader.construct_object(yaml.ScalarNode(tag, text, event.start_mark, event.end_mark))
        except ValueError:
            problem = f"expected a value of {tag.replace('tag:yaml.org,2002:', '!!')}, got {quote(text)}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark) from None

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
            if isinstance(key, dict | list):
                problem = f"expected a text as a key, got {quote(key)}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
            if key in mapping:
                raise yaml.MarkedYAMLError(problem=f"{key!r} twice in one mapping", problem_mark=event.start_mark)
            mapping[key] = read(following())
        if not merged:
            return mapping
        if not all(isinstance(one, dict) for one in merged):
            raise yaml.MarkedYAMLError(problem="`<<` without a mapping", problem_mark=start.start_mark)
        return {key: value for one in [*merged, mapping] for key, value in one.items()}
