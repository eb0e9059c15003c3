"""The objects of a resource with their history, and LIST: selectors, pages of a consistent snapshot, continue tokens.

An object is never changed, only replaced, so a snapshot copies only the keys. A watch resumes from the history.
"""

import base64
import binascii
import json
import re
from bisect import bisect_left, bisect_right, insort
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import attrgetter

from shared.devserver.apiserver.errors import bad_request, expired, invalid, too_large_revision
from shared.devserver.apiserver.resources import Object, Resource

Key = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an object.

    Attributes:
        revision: The resourceVersion of the change.
        type: ADDED, MODIFIED or DELETED.
        key: The key of the object.
        obj: The object after the change; a deleted object has the resourceVersion of its deletion.
        previous: The object before the change; None if it was created.
    """

    revision: int
    type: str
    key: Key
    obj: Object
    previous: Object | None


class Table:
    """All objects of one resource.

    Attributes:
        objects: The existing objects.
        compacted: The revision before which the history is dropped.
    """

    def __init__(self, history: int) -> None:
        self.objects: dict[Key, Object] = {}
        self.compacted = 0
        self._history = history
        self._keys: list[Key] = []  # sorted
        self._changes: list[Change] = []  # by revision

    def apply(self, change: Change) -> None:
        """Apply a change, and add it to the history."""
        if change.type == "ADDED":
            insort(self._keys, change.key)
        if change.type == "DELETED":
            del self._keys[bisect_left(self._keys, change.key)]
            del self.objects[change.key]
        else:
            self.objects[change.key] = change.obj
        self._changes.append(change)
        if len(self._changes) >= 2 * self._history:  # drop half at once, to avoid a copy of the list for each write
            self.compact(self._changes[self._history - 1].revision)

    def compact(self, revision: int) -> None:
        """Drop the history before a revision."""
        self.compacted = max(self.compacted, revision)
        del self._changes[: bisect_right(self._changes, revision, key=attrgetter("revision"))]

    def since(self, revision: int) -> Sequence[Change]:
        """Return the changes after a revision that is not compacted."""
        return self._changes[bisect_right(self._changes, revision, key=attrgetter("revision")) :]

    def snapshot(self, revision: int, lower: Key, upper: Key) -> tuple[list[Key], Mapping[Key, Object | None]]:
        """Return the table at a revision.

        Returns:
            The sorted keys from `lower` up to, not including, `upper`; and a mapping with their objects.
        """
        keys = self._keys[bisect_left(self._keys, lower) : bisect_left(self._keys, upper)]
        # Changes are undone from the newest to the oldest, so that the oldest state remains.
        past = {change.key: change.previous for change in reversed(self.since(revision))}
        if past:
            candidates = {*keys, *(key for key in past if lower <= key < upper)}
            keys = sorted(key for key in candidates if key not in past or past[key] is not None)
        present: dict[Key, Object | None] = self.objects  # type: ignore[assignment]  # only read
        return keys, ChainMap(past, present)


_AFTER_ANY = "\U0010ffff"
_NOW = -1  # a token's revision if its snapshot is lost: continue at the same key in the newest state
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list"
    " without the continue parameter, or use the continue token in this response to retrieve the remainder of the"
    " results. Continuing with the provided token results in an inconsistent list - objects that were created,"
    " modified, or deleted between the time the first chunk was returned and now may show up in the list."
)

Matcher = Callable[[Object], bool]

_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_KEY = r"(?P<key>[\w./-]+)"
_LABEL_TERM = re.compile(
    rf"(?P<absent>!)\s*{_KEY}|{_KEY.replace('key', 'set_key')}\s+(?P<verb>in|notin)\s*\((?P<values>[^()]*)\)"
    rf"|{_KEY.replace('key', 'eq_key')}\s*(?P<operator>==|=|!=)\s*(?P<value>[\w.-]*)|(?P<present>[\w./-]+)"
)
_FIELD_TERM = re.compile(r"([^=!]+)(==|=|!=)(.*)")


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a LIST.

    Attributes:
        namespace: The only namespace; empty for all namespaces.
        labels: A labelSelector.
        fields: A fieldSelector.
        limit: The number of objects on a page; 0 for all.
        continue_token: The token of the previous page.
        resource_version: The state to list; empty for the newest.
        match: The resourceVersionMatch: Exact, NotOlderThan, or empty.
    """

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""

    def matcher(self, resource: Resource) -> Matcher | None:
        """Return the function that selects objects; None if all are selected."""
        if not self.labels and not self.fields:
            return None
        by_label, by_field = label_matcher(self.labels), field_matcher(self.fields, resource)
        return lambda obj: by_label(obj) and by_field(obj)


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a snapshot.

    Attributes:
        items: The objects.
        resource_version: The resourceVersion of the snapshot.
        continue_token: The token for the next page; empty on the last page.
        remaining: The number of objects that follow; None if selectors make it unknown.
    """

    items: list[Object]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


def list_page(table: Table, revision: int, resource: Resource, query: Query) -> ListPage:
    """Return one page; `revision` is the newest revision.

    Raises:
        StatusError: 410 Expired, 400, 422, 504.
    """
    if query.resource_version == "0":
        query = replace(query, limit=0)  # kube-apiserver answers from its cache, without pages
    snapshot, after = _position(table, revision, query)
    lower = after or (query.namespace, "")
    upper = (query.namespace, _AFTER_ANY) if query.namespace else (_AFTER_ANY, "")
    keys, objects = table.snapshot(snapshot, lower, upper)
    matches = query.matcher(resource)
    items: list[Object] = []
    for index, key in enumerate(keys):
        if query.limit and len(items) == query.limit:
            token = _make_token(query.namespace, snapshot, keys[index - 1])
            return ListPage(items, str(snapshot), token, None if matches else len(keys) - index)
        obj = objects[key]
        if obj is not None and (matches is None or matches(obj)):
            items.append(obj)
    return ListPage(items, str(snapshot))


def parse_revision(text: str) -> int:
    """Parse a resourceVersion.

    Raises:
        StatusError: 400, the text is no resourceVersion.
    """
    if not text.isascii() or not text.isdigit():
        problem = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"invalid resource version: resourceVersion: {problem}")
    return int(text)


def _position(table: Table, newest: int, query: Query) -> tuple[int, Key | None]:
    """Return the revision of the snapshot, and the key to start from."""
    _check_match(query)
    if query.continue_token:
        return _continued(table, newest, query)
    asked = parse_revision(query.resource_version) if query.resource_version else 0
    if asked > newest:
        raise too_large_revision(asked, newest)
    exact = query.match == "Exact" or (query.match == "" and query.limit and asked)
    if exact and asked < table.compacted:
        raise expired("The resourceVersion for the provided list is too old.")
    return (asked if exact else newest), None


def _continued(table: Table, newest: int, query: Query) -> tuple[int, Key]:
    if query.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    revision, after = _parse_token(query)
    if revision == _NOW:
        return newest, after
    if revision < table.compacted:
        raise expired(_TOO_OLD, _make_token(query.namespace, _NOW, (after[0], after[1].rstrip("\0"))))
    return revision, after


def _check_match(query: Query) -> None:
    problem = ""
    if query.match not in ("", "Exact", "NotOlderThan"):
        problem = f'Unsupported value: "{query.match}": supported values: "Exact", "NotOlderThan", ""'
    elif query.match and not query.resource_version:
        problem = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif query.match == "Exact" and query.resource_version == "0":
        problem = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if problem:
        raise invalid("ListOptions.meta.k8s.io", "", "resourceVersionMatch", problem)


def _make_token(namespace: str, revision: int, last: Key) -> str:
    """Make a token in the format of kube-apiserver: the last key and a zero byte are the smallest key that follows."""
    start = "/".join(last[1:] if namespace else last) + "\0"
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _parse_token(query: Query) -> tuple[int, Key]:
    token = query.continue_token
    try:
        fields = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))  # noqa: TID251 - of the demo
        revision, start = int(fields["rv"]), str(fields["start"]).removeprefix("/")
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    if query.namespace:
        return revision, (query.namespace, start)
    namespace, _, name = start.rpartition("/")
    return revision, (namespace, name)


def _every(terms: tuple[Matcher, ...], obj: Object) -> bool:
    return all(term(obj) for term in terms)


@lru_cache(maxsize=256)
def label_matcher(selector: str) -> Matcher:
    """Compile a labelSelector: `a=b`, `a!=b`, `a in (b, c)`, `a notin (b)`, `a`, `!a`, joined by commas."""
    return partial(_every, tuple(_label_term(t.strip()) for t in _terms(selector)))


@lru_cache(maxsize=256)
def field_matcher(selector: str, resource: Resource) -> Matcher:
    """Compile a fieldSelector on fields that the resource allows: `a.b=c`, `a.b!=c`."""
    return partial(_every, tuple(_field_term(t, resource) for t in _terms(selector)))


def _terms(selector: str) -> list[str]:
    return _COMMA_OUTSIDE_PARENTHESES.split(selector) if selector else []


def _label_term(text: str) -> Matcher:
    match = _LABEL_TERM.fullmatch(text)
    if match is None:
        raise bad_request(f"unable to parse requirement: {text!r}")
    if match["verb"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return partial(_label_in, match["set_key"], values, match["verb"] == "in")
    if match["operator"]:
        return partial(_label_in, match["eq_key"], frozenset({match["value"]}), match["operator"] != "!=")
    return partial(_label_present, match["key"] or match["present"], match["absent"] is None)


def _label_in(key: str, values: frozenset[str], wanted: bool, obj: Object) -> bool:
    # An object without the label satisfies != and notin, as in Kubernetes.
    return (_labels(obj).get(key) in values) is wanted


def _label_present(key: str, wanted: bool, obj: Object) -> bool:
    return (key in _labels(obj)) is wanted


def _labels(obj: Object) -> Object:
    return obj["metadata"].get("labels") or {}


def _field_term(text: str, resource: Resource) -> Matcher:
    match = _FIELD_TERM.fullmatch(text)
    if match is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    path, operator, value = match.groups()
    if path not in ("metadata.name", "metadata.namespace", *resource.selectable):
        raise bad_request(f'field label not supported: "{path}" is not a known field selector of {resource.name}')
    return partial(_field_is, tuple(path.split(".")), value, operator != "!=")


def _field_is(path: tuple[str, ...], value: str, wanted: bool, obj: Object) -> bool:
    found = obj
    for step in path:
        found = found.get(step) or {}
    return (value == (found or "")) is wanted
