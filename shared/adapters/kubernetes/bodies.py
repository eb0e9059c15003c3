"""The JSON in answers of the API server: one reader, with limits of bytes, depth and values.

Others choose what their objects hold. An object beyond a limit is left out and named; it hides no other.
"""

from dataclasses import dataclass, field
from typing import Any

import aiohttp

from shared.adapters.kubernetes.refusals import TooLargeError, UnreadableError
from shared.core.jsontext import (
    DEPTH_MAX,
    JsonDepthError,
    JsonLimitError,
    JsonValuesError,
    count_at_most,
    outline,
    parse_json,
)

BODY_BYTES_MAX = 16 * 1024 * 1024
"""Of one answer. An object of the 1.5 MiB that etcd takes has six times as much JSON where it is full of `<`."""

LARGE_BYTES = 4 * 1024 * 1024
LARGE_VALUES = 150_000
"""A page above either is large: 500 Jobs have some 120,000 values."""

_WORDS_MAX = 200
_LIST_LEVELS = 2
"""The list, and its metadata and items; each item is nested in these."""


@dataclass(frozen=True, slots=True)
class Unread:
    """An object that is beyond a limit.

    Attributes:
        obj: Its upper levels, as far as they can be told: enough for its name.
        problem: What was expected.
    """

    obj: dict[str, Any]
    problem: str


async def read_json(response: aiohttp.ClientResponse) -> Any:
    """The JSON of an answer; its first words where it is none, as of a proxy that answers in HTML.

    Args:
        response: The answer.

    Raises:
        UnreadableError: The JSON is nested too deeply, or has too many values.
        TooLargeError: The answer has more than `BODY_BYTES_MAX` bytes.
    """
    body, is_whole = await _read_up_to(BODY_BYTES_MAX, response)
    if not is_whole:
        raise TooLargeError(f"expected an answer of at most {BODY_BYTES_MAX} bytes")
    try:
        return parse_json(body)
    except JsonLimitError as error:
        raise UnreadableError(f"the object cannot be read: {error}") from None
    except ValueError:
        return _words(body)


async def read_outcome(response: aiohttp.ClientResponse) -> Any:
    """As `read_json`, for a request whose status says all: the object of a success need not be readable."""
    try:
        return await read_json(response)
    except (UnreadableError, TooLargeError):
        if response.ok:
            return {}
        raise


def parse_change(line: bytes) -> Any | Unread:
    """The JSON of one line of a watch; the object's upper levels where the object is beyond a limit.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return parse_json(line, depth_max=DEPTH_MAX + 1)
    except JsonLimitError as error:
        change = _upper(line, b"object", b"metadata")
        obj = change.get("object")
        return Unread(obj if isinstance(obj, dict) else {}, str(error))


@dataclass(slots=True)
class ListReader:
    """Reads one page of a LIST.

    Attributes:
        bytes_max: Of a page of several objects.
        is_single: Whether the page was asked to have one object: then the page cannot be made smaller.
        unread: The objects that the page leaves out.
        is_large: Whether the page is one of those that a process should hold one of.
    """

    bytes_max: int
    is_single: bool
    unread: list[Unread] = field(default_factory=list)
    is_large: bool = False

    async def read(self, response: aiohttp.ClientResponse) -> Any:
        """As `read_json`; the objects beyond a limit are not among `items`.

        Raises:
            TooLargeError: The page is to be asked for in smaller ones.
        """
        self.unread.clear()
        bytes_max = BODY_BYTES_MAX if self.is_single else self.bytes_max
        body, is_whole = await _read_up_to(bytes_max, response)
        self.is_large = len(body) > LARGE_BYTES or (len(body) > LARGE_VALUES and count_at_most(body) > LARGE_VALUES)
        problem = f"expected an answer of at most {bytes_max} bytes"
        try:
            if is_whole:
                return parse_json(body, depth_max=DEPTH_MAX + _LIST_LEVELS)
        except JsonDepthError:
            return self._parse_items(body, "")
        except JsonValuesError as error:
            problem = str(error)
        except ValueError:
            return _words(body)
        if not self.is_single:
            raise TooLargeError(problem)
        return self._parse_items(body, problem)

    def _parse_items(self, body: bytes, problem: str) -> Any:
        """The list, each item parsed alone; with a problem there may be one item only, which is left out."""
        outlined = outline(body, b"metadata", b"items")
        page = _parse_upper(outlined.text)
        if "metadata" not in page or (problem and len(outlined.items) > 1):  # where to go on cannot be told
            raise TooLargeError(problem or "expected a list with metadata")
        page["items"] = []
        for item in (body[start:end] for start, end in outlined.items):
            try:
                page["items"] += [] if problem else [parse_json(item)]
            except JsonLimitError as error:
                self.unread.append(Unread(_upper(item, b"metadata"), str(error)))
            else:
                self.unread += [Unread(_upper(item, b"metadata"), problem)] if problem else []
        return page


async def _read_up_to(bytes_max: int, response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """A body, or its first bytes, and whether it is whole."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > bytes_max:
            response.close()
            return bytes(body[:bytes_max]), False
    return bytes(body), True


def _upper(text: bytes, *keys: bytes) -> dict[str, Any]:
    return _parse_upper(outline(text, *keys).text)


def _parse_upper(text: bytes) -> dict[str, Any]:
    try:
        upper = parse_json(text)
    except ValueError:
        return {}
    return upper if isinstance(upper, dict) else {}


def _words(body: bytes) -> str:
    return body[:_WORDS_MAX].decode(errors="replace").strip()
