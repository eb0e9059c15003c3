"""Check the depth and the number of values of untrusted JSON before it is parsed.

The C stack overflows at a few thousand levels of nesting, and a parsed value takes much more memory than its JSON. So
each text is measured as bytes, without recursion and without a Python loop over its characters. A text beyond the
limits is rejected.

What msgspec accepts, it parses exactly as the standard library does, in two thirds of the time. It refuses NaN, numbers
beyond a float and lone surrogates, which the standard library accepts; such a text is parsed a second time. orjson is
not used, because it turns integers of more than 64 bits into floats.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

JSON_DEPTH_MAX = 150
"""The most levels of nested mappings and lists in one object; Kubernetes' own kinds have 20, and a CRD some 60."""

JSON_VALUES_MAX = 400_000
"""The most values in one text: at most 80 MB in memory. 500 Pods have some 250,000; 1.5 MiB of JSON has some 85,000."""

_CHUNK = 1 << 18  # bytes that are measured at once: they fit into the processor's cache
_BRACKETS_MAX = 2 * JSON_VALUES_MAX
_ALIKE = bytes.maketrans(b"[]", b"{}")
_NO_STRUCTURE = bytes(set(range(256)) - set(b'{}[]",'))

_LISTS = (b"items", b"rows")
_CLOSERS = {b"{": b"}", b"[": b"]"}
_NEXT_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"|\{\}|\[\])*+([{}\[\]])', re.DOTALL)
_KEY = re.compile(rb'"([^"\\]*)"\s*:\s*[{\[]\Z')


class JsonLimitError(ValueError):
    """A text of JSON exceeds a limit, so it is not parsed."""


class JsonDepthError(JsonLimitError):
    """A text of JSON is nested too deeply."""


class JsonValuesError(JsonLimitError):
    """A text of JSON has too many values."""


def parse_json(text: bytes | str, *, depth_max: int = JSON_DEPTH_MAX) -> Any:
    """Parse JSON within the limits.

    Args:
        text: JSON; bytes are UTF-8.
        depth_max: The most levels of nesting: those of one object, plus those around it.

    Raises:
        JsonDepthError: The text is nested too deeply.
        JsonValuesError: The text has more than `JSON_VALUES_MAX` values.
        ValueError: The text is not JSON.
    """
    check_json(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, depth_max=depth_max)
    decode, refusals = _fast_decoder()
    try:
        return decode(text)
    except refusals:
        return _parse_any(text)


@cache
def _fast_decoder() -> tuple[Callable[[bytes | str], Any], tuple[type[Exception], ...]]:
    """The decoder of msgspec, and its errors about a text that it refuses."""
    import msgspec  # noqa: PLC0415 - 7 ms, and `schedule` parses no answers of the API server

    return msgspec.json.Decoder().decode, (msgspec.MsgspecError, ValueError, RecursionError)


def _parse_any(text: bytes | str) -> Any:
    try:
        return json.loads(text if isinstance(text, str) else text.decode())  # noqa: TID251 - checked before
    except RecursionError:
        raise _too_deep() from None


def check_json(text: bytes, *, depth_max: int = JSON_DEPTH_MAX) -> None:
    """Check a text against the limits, but not whether it is valid JSON.

    Args:
        text: UTF-8.
        depth_max: The most levels of nesting: those of one object, plus those around it.

    Raises:
        JsonDepthError: The text is nested too deeply.
        JsonValuesError: The text has more than `JSON_VALUES_MAX` values.
    """
    if text.count(b"{") + text.count(b"[") <= depth_max and count_at_most(text) <= JSON_VALUES_MAX:
        return
    brackets, values = [], 1
    for structure in _structures(text):
        values += structure.count(b",") + structure.count(b"{")
        if values > JSON_VALUES_MAX:
            raise JsonValuesError(f"expected JSON of at most {JSON_VALUES_MAX} values")
        brackets.append(structure.replace(b",", b""))
    if _is_deeper(b"".join(brackets), depth_max):
        raise _too_deep()


def count_at_most(text: bytes) -> int:
    """An upper bound of the values in a text, which is fast to count: brackets and commas in strings count too."""
    return 1 + text.count(b"{") + text.count(b"[") + text.count(b",")


def is_nested_deeper(value: Any, depth_max: int) -> bool:
    """Return whether a parsed value, for example of YAML, is nested more deeply; one that contains itself always is.

    Args:
        value: JSON.
        depth_max: The most levels of nesting.
    """
    level = _containers([value])
    for _ in range(depth_max):
        if not level:
            return False
        level = _containers(inner for one in level for inner in (one.values() if isinstance(one, dict) else one))
    return bool(level)


def _containers(values: Iterable[Any]) -> list[Any]:
    """The mappings and lists among the values, each once: a YAML alias may appear in thousands of places."""
    return list({id(one): one for one in values if isinstance(one, dict | list)}.values())


def _too_deep() -> JsonDepthError:
    return JsonDepthError(f"nested too deeply: expected at most {JSON_DEPTH_MAX} levels in one object")


def _structures(text: bytes) -> Iterator[bytes]:
    """The brackets and commas of a text outside of strings, by chunk; square brackets become curly brackets."""
    is_in_string, rest = False, b""
    for start in range(0, len(text), _CHUNK):
        chunk = rest + text[start : start + _CHUNK]
        rest = b""
        if b"\\" in chunk:
            if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2:  # the last backslash escapes a character of the next chunk
                chunk, rest = chunk[:-1], b"\\"
            chunk = chunk.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        structure = chunk.translate(_ALIKE, _NO_STRUCTURE)
        if is_in_string:
            structure = b'"' + structure
        is_in_string = structure.count(b'"') % 2 == 1
        structure = structure.replace(b'""', b"")  # a pair of quotes does not change the state of what follows
        yield b"".join(structure.split(b'"')[::2])


def _is_deeper(brackets: bytes, depth_max: int) -> bool:
    """Return whether curly brackets are nested more deeply; each round removes the innermost pairs."""
    for rounds in range(depth_max):
        rest = brackets.replace(b"{}", b"")
        if len(rest) == len(brackets):  # unbalanced, so no JSON; a parser may still descend into it
            return rounds + rest.count(b"{") > depth_max
        brackets = rest
    return bool(brackets)


@dataclass(frozen=True, slots=True)
class Outline:
    """A text of JSON that keeps only some mappings and lists; all others are empty.

    Attributes:
        text: JSON.
        items: The start and end of each element of the list `items` in the original text; a truncated element ends
            with the text.
    """

    text: bytes
    items: tuple[tuple[int, int], ...]


def outline(text: bytes, *keys: bytes) -> Outline:
    """Read the upper levels of a text of JSON, without recursion; a truncated text is completed.

    Args:
        text: UTF-8.
        keys: The keys of the mappings and lists to keep, beside the outermost: `metadata` for an object.
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
    """Builds an outline from the brackets of a text, each with the text before it."""

    def __init__(self, keys: frozenset[bytes]) -> None:
        self._keys = keys
        self._kept: list[bytes] = []
        self._closers: list[bytes] = []  # of the open containers that are kept, and of one emptied inside them
        self._skipped = 0  # the number of open containers, from the emptied one on
        self._start = 0  # the start of the emptied container
        self._items: list[tuple[int, int]] = []
        self._items_depth = 0  # the depth of the list `items` while it is open

    def take(self, part: bytes, end: int) -> bool:
        """Add one bracket; false if it closes no open container."""
        if part[-1:] in _CLOSERS:
            self._open(part, end)
        elif not self._closers:
            return False
        else:
            self._close(part, end)
        return True

    def finish(self, end: int) -> Outline:
        """The outline of a text that ends at `end`."""
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
        elif key is not None and key[1] in _LISTS:
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
