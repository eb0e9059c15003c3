"""Read the Kubernetes objects of a YAML or JSON file one document at a time, as kubectl does.

JSON, as in the output of `kubectl get -o json`, is parsed as JSON. Everything else is parsed as YAML by the C library.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import yaml

from shared.cli.documents.yaml_limits import LEVELS_MAX, TOO_DEEP, check_limits
from shared.cli.documents.yaml_values import KubernetesLoader, YamlDocument
from shared.core.jsontext import is_nested_deeper
from shared.errors import TtlError

DOCUMENT_MAX = 16_777_216
"""The most characters of one document; a List of many objects is one document."""

_DOCUMENT = re.compile(r"---(\s|$)")


def read_documents(stream: Iterable[str], name: str) -> Iterator[dict[str, Any]]:
    """Yield every object of every document, including the items of Lists; empty documents are skipped.

    Args:
        stream: The lines of the file.
        name: The name of the file, for messages.

    Raises:
        TtlError: The file is not YAML, or a document is not an object, has a key twice, or is too large or too deep.
            The message names the file and the document.
    """
    number = 0
    try:
        for text in _split(stream, name):
            for document in _load(text, f"{name}, document {number + 1}"):
                number += 1
                if _may_be_deeper(text) and is_nested_deeper(document, LEVELS_MAX):
                    raise TtlError(f"{name}, document {number}: {TOO_DEEP}")
                if document is not None:
                    yield from _objects(document, f"{name}, document {number}")
    except yaml.YAMLError as error:
        raise TtlError(f"{name}: expected YAML, got {_describe(error)} in document {number + 1}") from None
    except (UnicodeDecodeError, RecursionError, ValueError, TypeError) as error:  # TypeError: a key that is a list
        raise TtlError(f"{name}: expected YAML, got {error}") from None


def _may_be_deeper(text: str) -> bool:
    """Return whether a value can be deeper than `check_limits` measured: it has aliases, or it is JSON."""
    return "*" in text or text.lstrip().startswith("{")


def _load(text: str, place: str) -> Iterator[Any]:
    if text.lstrip().startswith("{"):
        try:
            document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_json)
        except json.JSONDecodeError:  # YAML may begin with a bracket too
            yield from _load_yaml(text, place)
        else:
            yield document
    else:
        yield from _load_yaml(text, place)


def _load_yaml(text: str, place: str) -> Iterator[Any]:
    check_limits(text, place)
    loader = KubernetesLoader(text)
    try:
        while (event := loader.get_event()) is not None:
            if isinstance(event, yaml.DocumentStartEvent):
                yield YamlDocument(loader).read(loader.get_event())
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


def _split(stream: Iterable[str], name: str) -> Iterator[str]:
    """Yield the text of each document; a line that begins with `---` starts one, even inside a block scalar."""
    lines: list[str] = []
    size, has_content = 0, False
    for line in stream:
        if has_content and line.startswith("---") and _DOCUMENT.match(line):
            yield "".join(lines)
            lines, size, has_content = [], 0, False
        # A document may have comments and directives before its `---`.
        has_content = has_content or not line.startswith(("#", "%", "\n"))
        lines.append(line)
        size += len(line)
        if size > DOCUMENT_MAX:
            raise TtlError(f"{name}: expected at most {DOCUMENT_MAX} characters in one document")
    if lines:
        yield "".join(lines)


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
    """Open a text file for reading.

    Raises:
        TtlError: The file cannot be opened.
    """
    try:
        return Path(path).open(encoding="utf-8")
    except OSError as error:
        raise TtlError(f"{path}: {error.strerror}") from None
