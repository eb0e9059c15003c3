"""Read the JSON of API server answers, with limits on bytes, depth and number of values.

Users control the content of their objects. An object that exceeds a limit is left out and reported; the others of its
page are returned. If a page of a LIST is too large, it is requested again with fewer objects.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal, Protocol, TypeVar

import aiohttp

from shared.adapters.http_client import read_up_to
from shared.adapters.kubernetes.refusals import TooLargeError, UnreadableError
from shared.core.values.jsontext import (
    JSON_DEPTH_MAX,
    JsonDepthError,
    JsonLimitError,
    JsonValuesError,
    count_at_most,
    outline,
    parse_json,
)

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of an answer. An object of 1.5 MiB in etcd is six times as large in JSON if it is full of `<`."""

LARGE_BYTES = 4 * 1024 * 1024
LARGE_VALUES = 150_000
"""A page that exceeds either value is large: 500 Jobs have some 120,000 values."""

_WORDS_MAX = 200
_LIST_LEVELS = 2
"""Levels around each item: the list itself, and its `items`."""

PAGE_LIMIT = 500
PAGE_BYTES_MAX = 8 * 1024 * 1024
"""Maximum size of a page of several objects; it takes several times as much memory. A single object may be larger."""
_FEWER = 4
"""The limit of a LIST is divided by this number if a page was too large."""

_P = TypeVar("_P")


class PathKind(Protocol):
    """A kind with the fields that its URL path needs, such as a KindRule."""

    @property
    def api_version(self) -> str:
        """The apiVersion in which it is served."""

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""

    @property
    def kind(self) -> str:
        """The kind of its objects."""

    @property
    def plural(self) -> str:
        """Its name in paths."""


@dataclass(frozen=True, slots=True)
class Unread:
    """An object that exceeds a limit.

    Attributes:
        obj: The readable part of its upper levels: enough for its name.
        problem: The limit, as an error message.
    """

    obj: dict[str, Any]
    problem: str


async def read_json(response: aiohttp.ClientResponse) -> Any:
    """Read the JSON of an answer; if it is not JSON, as with the HTML of a proxy, return its first characters.

    Args:
        response: The answer.

    Raises:
        UnreadableError: The JSON is nested too deeply, or has too many values.
        TooLargeError: The answer has more than `ANSWER_BYTES_MAX` bytes.
    """
    body, is_whole = await read_up_to(ANSWER_BYTES_MAX, response)
    if not is_whole:
        raise TooLargeError(f"expected an answer of at most {ANSWER_BYTES_MAX} bytes, got a larger one")
    try:
        return parse_json(body)
    except JsonLimitError as error:
        raise UnreadableError(f"the object cannot be read: {error}") from None
    except ValueError:
        return _words(body)


async def read_outcome(response: aiohttp.ClientResponse) -> Any:
    """Read as `read_json` does, but do not parse the object in a success: its status is the result.

    The body is received, so that the connection can be used again. If it is no object, as with the HTML of a proxy,
    its first characters are returned.
    """
    if response.status >= HTTPStatus.MULTIPLE_CHOICES:
        return await read_json(response)
    body, _ = await read_up_to(ANSWER_BYTES_MAX, response)
    return {} if body.lstrip()[:1] == b"{" else _words(body)


@dataclass(slots=True)
class ListReader:
    """Reads one page of a LIST.

    Attributes:
        bytes_max: Maximum size of a page of several objects.
        is_single: The page was requested with a limit of one object, so it cannot be made smaller.
        unread: The objects that were left out of the page.
        is_large: The page is so large that a process should hold only one such page.
        items: The field with the objects; the rows of a Table have an object each.
    """

    bytes_max: int
    is_single: bool
    items: Literal["items", "rows"] = "items"
    unread: list[Unread] = field(default_factory=list)
    is_large: bool = False

    async def read(self, response: aiohttp.ClientResponse) -> Any:
        """Read as `read_json` does, but leave objects that exceed a limit out of the items.

        Raises:
            TooLargeError: The page is too large: request it again with fewer objects.
        """
        self.unread.clear()
        bytes_max = ANSWER_BYTES_MAX if self.is_single else self.bytes_max
        body, is_whole = await read_up_to(bytes_max, response)
        self.is_large = len(body) > LARGE_BYTES or (len(body) > LARGE_VALUES and count_at_most(body) > LARGE_VALUES)
        problem = f"expected an answer of at most {bytes_max} bytes, got a larger one"
        try:
            if is_whole:
                return parse_json(body, depth_max=JSON_DEPTH_MAX + _LIST_LEVELS)
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
        """Parse each item alone. A `problem` concerns the whole page: then its only item is left out."""
        outlined = outline(body, b"metadata", self.items.encode())
        page = _parse_upper(outlined.text)
        if "metadata" not in page or (problem and len(outlined.items) > 1):  # no continue token, or too many items
            raise TooLargeError(problem or "expected a list with metadata, got one without")
        page[self.items] = []
        for item in (body[start:end] for start, end in outlined.items):
            try:
                page[self.items] += [] if problem else [parse_json(item)]
            except JsonLimitError as error:
                self.unread.append(Unread(self._upper(item), str(error)))
            else:
                self.unread += [Unread(self._upper(item), problem)] if problem else []
        return page

    def _upper(self, item: bytes) -> dict[str, Any]:
        keys = (b"metadata",) if self.items == "items" else (b"object", b"metadata")
        return upper(item, *keys)


def upper(text: bytes, *keys: bytes) -> dict[str, Any]:
    """Return the readable part of the upper levels of an object that exceeds a limit; see `outline`."""
    return _parse_upper(outline(text, *keys).text)


def _parse_upper(text: bytes) -> dict[str, Any]:
    try:
        upper = parse_json(text)
    except ValueError:
        return {}
    return upper if isinstance(upper, dict) else {}


def _words(body: bytes) -> str:
    return body[:_WORDS_MAX].decode(errors="replace").strip()


def typed(obj: Mapping[str, Any], rule: PathKind) -> dict[str, Any]:
    """Set apiVersion and kind: items of a built-in kind's LIST lack them, and those of a metadata LIST differ."""
    return {**obj, "apiVersion": rule.api_version, "kind": rule.kind}


class PageLimits:
    """How many objects of each kind fit on a page."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}

    async def fit(self, name: str, limit: int, ask: Callable[[int], Awaitable[_P]]) -> _P:
        """Request a page with as many objects as fit.

        Args:
            name: The kind.
            limit: The most objects.
            ask: Requests the page with a limit.

        Raises:
            TooLargeError: A page of one object is too large.
        """
        while True:
            current = min(limit, self._limits.get(name, limit))
            try:
                page = await ask(current)
            except TooLargeError:
                if current == 1:
                    raise
                self._limits[name] = max(1, current // _FEWER)
            else:
                if name in self._limits:  # the next objects may have the usual size
                    self._limits[name] = min(PAGE_LIMIT, current * 2)
                return page
