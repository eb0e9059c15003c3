"""Read the answers of the API server: JSON within limits, refusals as errors, and Secrets without their data.

Users control the content of their objects. An object that exceeds a limit is left out and reported; the others of its
page are returned. If a page of a LIST is too large, it is requested again with fewer objects.

The content of a Secret or ConfigMap never gets into the memory of a process. The answer to a GET has only metadata.
Those to a PATCH and to a DELETE, which have the whole object by default, are Tables without objects. `usage` lists
Tables with metadata, the type of a Secret, and the number of keys: the API server makes a Table of any kind, for
`kubectl get`. The metadata may have data in annotations, in which some clients repeat the whole object: they are
removed right after the answer was read, see `is_copy`.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Literal, Protocol, TypeVar

import aiohttp

from shared.adapters.http_client import read_up_to
from shared.core.kinds.rule import KindRule
from shared.core.policy.usage import USAGE_KINDS
from shared.core.references.reference import TargetKind
from shared.core.values.jsontext import (
    JSON_DEPTH_MAX,
    JsonDepthError,
    JsonLimitError,
    JsonValuesError,
    count_at_most,
    outline,
    parse_json,
)
from shared.core.values.objects import (
    ANNOTATION_DOMAIN,
    GUARD_PREFIX,
    STOP_GUARD_PREFIX,
    ObjectRef,
    get_in,
    get_text,
    list_mappings,
)
from shared.errors import ConflictError, ForbiddenError, GuardError, PermanentError, TryLaterError
from shared.ports.cluster import Target

_NAME = f"(?:{GUARD_PREFIX}|{STOP_GUARD_PREFIX})[^']*"
_BY_GUARD = re.compile(
    rf"ValidatingAdmissionPolicy '({_NAME})' with binding '[^']*'(?: denied request)?: (.*)", re.DOTALL
)
_BY_WEBHOOK = "admission webhook "
_BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT)


class UnreadableError(PermanentError):
    """An object is nested too deeply, or has too many values, to be parsed."""


class TooLargeError(PermanentError):
    """An answer is larger than this process accepts: request fewer objects at once."""


class GoneError(PermanentError):
    """410: a continue token, or the resourceVersion of a watch, is older than the API server's history.

    Attributes:
        continue_token: Continues the LIST in the present state; empty if the server offers none.
    """

    def __init__(self, message: str, continue_token: str = "") -> None:
        super().__init__(message)
        self.continue_token = continue_token


def raise_for(status: int, payload: Any, *, headers: Mapping[str, str], path: str) -> None:
    """Raise the error for a refusal; its text includes the API server's own message."""
    message = payload if isinstance(payload, str) else get_text(payload, "message")
    message = message or f"HTTP {status}"
    match status:
        case HTTPStatus.UNAUTHORIZED:
            raise PermanentError(f"the API server rejected the credentials (401): {message}")
        case HTTPStatus.FORBIDDEN | HTTPStatus.UNPROCESSABLE_ENTITY if denial := _BY_GUARD.search(message):
            policy, reason = denial[1], denial[2]
            guard = "stop guard" if policy.startswith(STOP_GUARD_PREFIX) else "delete guard"
            raise GuardError(f"the {guard} refuses, by ValidatingAdmissionPolicy {policy}: {reason}")
        case HTTPStatus.FORBIDDEN:
            raise ForbiddenError(message)
        case HTTPStatus.CONFLICT:
            raise ConflictError(message)
        case HTTPStatus.GONE:
            raise GoneError(message, get_text(payload, "metadata.continue"))
        case _ if status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise TryLaterError(
                f"the API server answered {status}: {message}",
                retry_after_seconds=_seconds(headers),
                is_overload=_is_overload(status, headers, message),
            )
        case _:
            raise PermanentError(f"the API server answered {status} for {path.partition('?')[0]}: {message}")


def untrusted(server: str, error: aiohttp.ClientConnectorCertificateError) -> PermanentError:
    """Return the error for a server certificate that is not trusted; a retry cannot succeed."""
    reason = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
    return PermanentError(
        f"the certificate of the API server at {server} is not trusted: {reason}; expected a certificate signed by "
        "the CA of TTL_API_CA, of the kubeconfig, or of the cluster"
    )


def _is_overload(status: int, headers: Mapping[str, str], message: str) -> bool:
    """Return whether the API server itself has too many requests; an admission webhook of one kind may answer 429 too.

    Source: `tooManyRequests` in k8s.io/apiserver, pkg/server/filters/maxinflight.go.
    """
    return status == HTTPStatus.TOO_MANY_REQUESTS and "retry-after" in headers and not message.startswith(_BY_WEBHOOK)


def _seconds(headers: Mapping[str, str]) -> float:
    """Return the Retry-After header in seconds; 1 if it is absent or invalid."""
    try:
        return min(max(0.0, float(headers.get("retry-after", "1"))), 3_600.0)
    except ValueError:
        return 1.0


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


JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_WITHOUT_DATA = frozenset((rule.group, rule.kind) for rule in USAGE_KINDS.rules)

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
"""The media type of a Table; without `application/json`, so that no server answers with whole objects."""

INCLUDE_METADATA = {"includeObject": "Metadata"}

COPIES = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "kapp.k14s.io/original",
    "banzaicloud.com/last-applied",
    "objectset.rio.cattle.io/applied",
)
"""The starts of the names of annotations in which a client repeats an object; the last two are compressed."""

_COPIED_DATA = re.compile(r'"(?:data|stringData|binaryData)\\*"\s*:')
"""A key of JSON that has the data of an object, in any depth, also in JSON that is a text in JSON."""


def has_data(rule: KindRule) -> bool:
    """Return whether the objects of a kind have data that is never read."""
    return (rule.group, rule.kind) in _WITHOUT_DATA and rule.never_finishes is not None


def accept_one(rule: KindRule) -> str:
    """Return the media type of the answer to a GET."""
    return METADATA if has_data(rule) else JSON


def accept_list(rule: KindRule, *, metadata_only: bool) -> str:
    """Return the media type of the answer to a LIST; a server without metadata lists sends whole objects."""
    if has_data(rule):
        return METADATA_LIST
    return f"{METADATA_LIST},{JSON}" if metadata_only else JSON


def accept_write(rule: KindRule) -> str:
    """Return the media type of the answer to a PATCH or a DELETE; see `write_query`."""
    return TABLE if has_data(rule) else JSON


def write_query(rule: KindRule) -> dict[str, str]:
    """Return the query parameters with which the Table in the answer has no object."""
    return {"includeObject": "None"} if has_data(rule) else {}


def read_one(body: Any, rule: KindRule) -> dict[str, Any]:
    """Return the object of the answer to a GET, without copies of the data in annotations."""
    return as_target(body, TargetKind(rule.kind)) if has_data(rule) else typed(body, rule)


def read_written(body: Any, rule: KindRule, ref: ObjectRef) -> dict[str, Any]:
    """Return the object of the answer to a PATCH; of an object with data, only its identity."""
    if not has_data(rule):
        return typed(body, rule)
    metadata = {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}
    return {"apiVersion": rule.api_version, "kind": rule.kind, "metadata": metadata}


def read_rows(table: Any, kind: TargetKind, read_at: datetime, ahead: timedelta) -> list[Target]:
    """Return the objects of a Table.

    Raises:
        PermanentError: The answer is no Table, or a row has more than metadata.
    """
    if get_text(table, "kind") != "Table":
        raise PermanentError(f"expected a Table of {kind}s, got {get_text(table, 'kind') or 'another answer'}")
    places = {get_text(one, "name"): place for place, one in enumerate(list_mappings(table, "columnDefinitions"))}
    return [_read_row(row, kind, places, read_at, ahead) for row in list_mappings(table, "rows")]


def _read_row(
    row: Mapping[str, Any], kind: TargetKind, places: Mapping[str, int], read_at: datetime, ahead: timedelta
) -> Target:
    if get_text(row, "object.kind") != "PartialObjectMetadata":
        raise PermanentError(f"expected only the metadata of a {kind}, got {get_text(row, 'object.kind') or 'none'}")
    obj = as_target(row.get("object"), kind)
    secret_type, keys = _cell(row, places.get("Type")), _cell(row, places.get("Data"))
    if kind is TargetKind.SECRET and isinstance(secret_type, str):
        obj["type"] = secret_type
    return Target(obj, read_at, keys if isinstance(keys, int) else None, ahead)


def as_target(obj: Any, kind: TargetKind) -> dict[str, Any]:
    """Return apiVersion, kind and metadata of a Secret or ConfigMap, without annotations that may repeat its data."""
    metadata = get_in(obj, "metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        metadata["annotations"] = {key: value for key, value in annotations.items() if not is_copy(key, value)}
    return {"apiVersion": "v1", "kind": str(kind), "metadata": metadata}


def is_copy(name: str, value: Any) -> bool:
    """Return whether an annotation of a Secret or a ConfigMap may repeat its data.

    That is an annotation of a known client, or any whose value has a JSON key for data. An annotation of our own domain
    is none: a hold must keep its object, whatever its reason says.
    """
    if name.startswith(f"{ANNOTATION_DOMAIN}/"):
        return False
    return name.startswith(COPIES) or (isinstance(value, str) and _COPIED_DATA.search(value) is not None)


def _cell(row: Mapping[str, Any], place: int | None) -> Any:
    cells = row.get("cells")
    return cells[place] if isinstance(cells, list) and place is not None and place < len(cells) else None
