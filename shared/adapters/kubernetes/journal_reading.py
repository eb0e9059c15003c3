"""The Kubernetes Events of the journal, as the commands read them. Any user who may create Events can forge one."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from shared.adapters.kubernetes.bodies import PAGE_BYTES_MAX, PAGE_LIMIT, ListReader, PageLimits
from shared.adapters.kubernetes.journal_events import CONTROLLER, COUNTED, RECORD
from shared.adapters.kubernetes.requests import ApiServer
from shared.core.values.jsontext import parse_json
from shared.core.values.objects import ObjectRef, get_text, list_mappings, parse_instant

DATA_CHARACTERS_MAX = 16_384
"""Characters of an annotation with data; ours have about a thousand, and memory for many longer ones has no bound."""

COUNT_MAX = 2**31 - 1
"""Objects that an Event counts: the largest `series.count`. A longer number could be too long to be written."""


EVENT_AHEAD_MAX = timedelta(minutes=1)
"""How far the clock of the process that wrote an Event may be ahead of the API server's."""


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """An Event of the journal, as it is read.

    Attributes:
        ref: The object; without a name in a sum.
        action: What was done.
        reason: The reason.
        at: When it was done; in a sum the last time. At most `EVENT_AHEAD_MAX` after the API server stored the Event,
            so that a forged one does not stay the newest.
        note: What was done and why.
        count: How many objects it is about.
        data: The data of the CloudEvent, or the facts of the sum; empty if they cannot be read or are too long.
    """

    ref: ObjectRef
    action: str
    reason: str
    at: datetime
    note: str
    count: int
    data: Mapping[str, Any]

    @property
    def is_sum(self) -> bool:
        """Return whether it only counts objects."""
        return not self.ref.name


def parse_event(event: Mapping[str, Any]) -> JournalEvent | None:
    """Read an Event of events.k8s.io/v1; None if it is not one of the journal, or if it cannot be read."""
    try:
        at = parse_instant(get_text(event, "eventTime"))
    except ValueError:
        return None
    annotations = event.get("metadata", {}).get("annotations") or {}
    text = annotations.get(COUNTED) or annotations.get(RECORD)
    if get_text(event, "reportingController") != CONTROLLER or not isinstance(text, str):
        return None
    data = _parse(text)
    if COUNTED in annotations:
        return _parse_sum(event, data)
    ref = ObjectRef(
        *(get_text(event, f"regarding.{one}") for one in ("apiVersion", "kind", "namespace", "name", "uid"))
    )
    # The API server accepts an Event about an object of a namespace in which its writer has no rights.
    if not ref.name or (ref.namespace or "default") != get_text(event, "metadata.namespace"):
        return None
    return JournalEvent(ref, *_texts(event), _earlier(event, at), get_text(event, "note"), 1, data)


def _parse_sum(event: Mapping[str, Any], data: Mapping[str, Any]) -> JournalEvent | None:
    count = data.get("count")
    if type(count) is not int or not 1 <= count <= COUNT_MAX:
        return None
    try:
        at = _earlier(event, parse_instant(data.get("lastAt")))
    except ValueError:
        return None
    namespace = get_text(event, "metadata.namespace")
    ref = ObjectRef(str(data.get("apiVersion", "")), str(data.get("kind", "")), namespace, "", "")
    return JournalEvent(ref, *_texts(event), at, get_text(event, "note"), count, data)


def _earlier(event: Mapping[str, Any], at: datetime) -> datetime:
    """Return an instant that an Event says of itself, or when the API server stored the Event, if that was before."""
    try:
        stored_at = parse_instant(get_text(event, "metadata.creationTimestamp"))
    except ValueError:
        return at
    return stored_at if at - stored_at > EVENT_AHEAD_MAX else at


def _texts(event: Mapping[str, Any]) -> tuple[str, str]:
    return get_text(event, "action"), get_text(event, "reason")


def _parse(text: str) -> Mapping[str, Any]:
    if len(text) > DATA_CHARACTERS_MAX:
        return {}
    try:
        data = parse_json(text)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


async def list_journal(server: ApiServer, namespace: str) -> AsyncIterator[JournalEvent]:
    """Yield the Events of the journal in one namespace, or in all if it is empty.

    If a page is too large, it is requested again with fewer Events. An Event that cannot be read is left out.

    Raises:
        TtlError: The Events cannot be listed.
    """
    place = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
    path, limits, token = f"/apis/events.k8s.io/v1/{place}events", PageLimits(), ""
    while True:
        page = await limits.fit("events", PAGE_LIMIT, partial(_read_page, server, path, token))
        for event in list_mappings(page, "items"):
            if (one := parse_event(event)) is not None:
                yield one
        token = get_text(page, "metadata.continue")
        if not token:
            return


async def _read_page(server: ApiServer, path: str, token: str, limit: int) -> Any:
    query = {"fieldSelector": f"reportingController={CONTROLLER}", "limit": str(limit)}
    if token:
        query["continue"] = token
    reader = ListReader(PAGE_BYTES_MAX, is_single=limit == 1)
    answer = await server.request("GET", f"{path}?{urlencode(query)}", read=reader.read)
    return answer.body if answer else {}
