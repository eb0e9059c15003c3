"""List the Events of the journal from pages of bounded size: any user who may create Events can forge large ones."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from shared.adapters.kubernetes.bodies import PAGE_BYTES_MAX, PAGE_LIMIT, ListReader, PageLimits
from shared.adapters.kubernetes.journal_events import CONTROLLER
from shared.adapters.kubernetes.journal_reading import JournalEvent, parse_event
from shared.adapters.kubernetes.requests import ApiServer
from shared.core.values.objects import get_text, list_mappings


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
