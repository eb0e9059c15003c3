"""JSON that others wrote: how deep and how dense it is, before anything parses it.

The C stack ends at a few thousand levels of nesting, and a parsed value takes many times its JSON. So each text is
measured as bytes, without recursion and without a Python loop over its characters, and is refused beyond the limits.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

DEPTH_MAX = 150
"""Mappings and lists inside one another in one object; Kubernetes' own kinds have 20, and a CRD some 60."""

VALUES_MAX = 400_000
"""Values in one text: 500 Pods have some 250,000, and an object of 1.5 MiB some 85,000. In memory at most 80 MB."""

_CHUNK = 1 << 18  # bytes that are measured at once: they stay in the processor's cache
_BRACKETS_MAX = 2 * VALUES_MAX
_ALIKE = bytes.maketrans(b"[]", b"{}")
_NO_STRUCTURE = bytes(set(range(256)) - set(b'{}[]",'))

_CLOSERS = {b"{": b"}", b"[": b"]"}
_NEXT_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"|\{\}|\[\])*+([{}\[\]])', re.DOTALL)
_KEY = re.compile(rb'"([^"\\]*)"\s*:\s*[{\[]\Z')


class JsonLimitError(ValueError):
    """A text of JSON is beyond a limit: it is not parsed."""


class JsonDepthError(JsonLimitError):
    """It is nested too deeply."""


class JsonValuesError(JsonLimitError):
    """It has too many values."""


def parse_json(text: bytes | str, *, depth_max: int = DEPTH_MAX) -> Any:
    """Parse JSON within the limits.

    Args:
        text: JSON; bytes are UTF-8.
        depth_max: Levels of nesting: those of an object, and of what it stands in.

    Raises:
        JsonDepthError: The text is nested too deeply.
        JsonValuesError: The text has more than `VALUES_MAX` values.
        ValueError: The text is not JSON.
    """
    check_json(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, depth_max=depth_max)
    try:
        return json.loads(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise _too_deep() from None


def check_json(text: bytes, *, depth_max: int = DEPTH_MAX) -> None:
    """Check a text against the limits; whether it is JSON is not checked.

    Args:
        text: UTF-8.
        depth_max: Levels of nesting: those of an object, and of what it stands in.

    Raises:
        JsonDepthError: The text is nested too deeply.
        JsonValuesError: The text has more than `VALUES_MAX` values.
    """
    if text.count(b"{") + text.count(b"[") <= depth_max and count_at_most(text) <= VALUES_MAX:
        return
    brackets, values = [], 1
    for structure in _structures(text):
        values += structure.count(b",") + structure.count(b"{")
        if values > VALUES_MAX:
            raise JsonValuesError(f"expected JSON of at most {VALUES_MAX} values")
        brackets.append(structure.replace(b",", b""))
    if _is_deeper(b"".join(brackets), depth_max):
        raise _too_deep()


def count_at_most(text: bytes) -> int:
    """The values in a text, or more: brackets and commas in strings count too. Faster than the exact number."""
    return 1 + text.count(b"{") + text.count(b"[") + text.count(b",")


def is_nested_deeper(value: Any, depth_max: int) -> bool:
    """The same of what was parsed already, as YAML is; a value that holds itself has no end.

    Args:
        value: JSON.
        depth_max: Levels of nesting.
    """
    level = _containers([value])
    for _ in range(depth_max):
        if not level:
            return False
        level = _containers(inner for one in level for inner in (one.values() if isinstance(one, dict) else one))
    return bool(level)


def _containers(values: Iterable[Any]) -> list[Any]:
    """Each once: an alias of YAML may stand in thousands of places."""
    return list({id(one): one for one in values if isinstance(one, dict | list)}.values())


def _too_deep() -> JsonDepthError:
    return JsonDepthError(f"nested too deeply: expected at most {DEPTH_MAX} levels in one object")


def _structures(text: bytes) -> Iterator[bytes]:
    """The text's brackets and commas outside of strings, chunk by chunk; square brackets become curly ones."""
    is_in_string, rest = False, b""
    for start in range(0, len(text), _CHUNK):
        chunk = rest + text[start : start + _CHUNK]
        rest = b""
        if b"\\" in chunk:
            if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2:  # the character that it escapes is in the next chunk
                chunk, rest = chunk[:-1], b"\\"
            chunk = chunk.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        structure = chunk.translate(_ALIKE, _NO_STRUCTURE)
        if is_in_string:
            structure = b'"' + structure
        is_in_string = structure.count(b'"') % 2 == 1
        structure = structure.replace(
            b'""', b""
        )  # whatever they enclose: a quote more or less changes all that follows
        yield b"".join(structure.split(b'"')[::2])


def _is_deeper(brackets: bytes, depth_max: int) -> bool:
    """Whether curly brackets are nested deeper: each round removes the innermost pairs."""
    for rounds in range(depth_max):
        rest = brackets.replace(b"{}", b"")
        if len(rest) == len(brackets):  # closed too early, or never: no JSON, and a parser may still descend into it
            return rounds + rest.count(b"{") > depth_max
        brackets = rest
    return bool(brackets)


@dataclass(frozen=True, slots=True)
class Outline:
    """A text of JSON in which all containers are empty but for a few.

    Attributes:
        text: JSON.
        items: Where the containers in the list `items` stood: start and end; one that breaks off ends with the text.
    """

    text: bytes
    items: tuple[tuple[int, int], ...]


def outline(text: bytes, *keys: bytes) -> Outline:
    """What a text tells in its upper levels, without recursion; a text that breaks off is completed.

    Args:
        text: UTF-8.
        keys: Of the containers that stay, beside the outermost: `metadata` for an object.
    """
    writer = _OutlineWriter(frozenset(keys))
    position = 0
    for _ in range(_BRACKETS_MAX):
        found = _NEXT_BRACKET.match(text, position)
        if found is None or not writer.take(found[0], found.end()):
            break
        position = found.end()
    return writer.finish(len(text))


class _OutlineWriter:
    """Takes a text bracket by bracket, each with what stands before it."""

    def __init__(self, keys: frozenset[bytes]) -> None:
        self._keys = keys
        self._kept: list[bytes] = []
        self._closers: list[bytes] = []  # of the open containers that stay, and of an emptied one in the last of them
        self._skipped = 0  # how many containers are open from the emptied one on
        self._start = 0  # of the emptied one
        self._items: list[tuple[int, int]] = []
        self._items_depth = 0  # of the list `items` while it is open

    def take(self, part: bytes, end: int) -> bool:
        """One bracket; false for one that closes nothing."""
        if part[-1:] in _CLOSERS:
            self._open(part, end)
        elif not self._closers:
            return False
        else:
            self._close(part, end)
        return True

    def finish(self, end: int) -> Outline:
        """The outline of a text that ends there."""
        if self._skipped and self._items_depth:
            self._items.append((self._start, end))
        return Outline(b"".join([*self._kept, *reversed(self._closers)]), tuple(self._items))

    def _open(self, part: bytes, end: int) -> None:
        if self._skipped:
            self._skipped += 1
            return
        key = _KEY.search(part)
        self._kept.append(part)
        self._closers.append(_CLOSERS[part[-1:]])
        if len(self._closers) > 1 and (key is None or key[1] not in self._keys):
            self._skipped, self._start = 1, end - 1
        elif key is not None and key[1] == b"items":
            self._items_depth = len(self._closers)

    def _close(self, part: bytes, end: int) -> None:
        if not self._skipped:
            self._items_depth = 0 if len(self._closers) == self._items_depth else self._items_depth
            self._closers.pop()
            self._kept.append(part)
            return
        self._skipped -= 1
        if not self._skipped:
            self._kept.append(self._closers.pop())
            if self._items_depth:
                self._items.append((self._start, end))
