"""Send each warning of a deletion to the webhook of a chat that accepts `{"text": "..."}`."""

import os
from collections import OrderedDict

import aiohttp
import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

SENT_MAX = 10_000
"""Ids of warnings that this process remembers, because a Broker may deliver an event more than once."""

TIMEOUT = aiohttp.ClientTimeout(total=10)

sent: OrderedDict[str, None] = OrderedDict()


def text_of(warned: dict) -> str:
    """The message in the chat."""
    ref = warned["ref"]
    place = f" -n {ref['namespace']}" if ref["namespace"] else ""
    hold = f"kubectl ttl hold {ref['kind'].lower()}/{ref['name']}{place} --reason WHY"
    what = f"{ref['kind']} {ref['namespace']}/{ref['name']}"
    return f"{what} is due at {warned['dueAt']} by {warned['ttlFrom']}. To keep it: `{hold}`"


@functions_framework.aio.http
async def chat(request: Request) -> Response:
    """Accept `object.warned`; a chat that does not answer leads to a 503, which the Broker retries."""
    event_id = request.headers.get("ce-id", "")
    if event_id in sent:
        return Response(status_code=204)
    text = text_of(await request.json())
    try:
        async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
            answer = await session.post(os.environ["CHAT_WEBHOOK"], json={"text": text})
            is_accepted = answer.ok
    except (aiohttp.ClientError, TimeoutError):
        is_accepted = False
    if not is_accepted:
        return Response("the chat did not accept the message\n", 503)
    sent[event_id] = None
    if len(sent) > SENT_MAX:
        sent.popitem(last=False)
    return Response(status_code=204)
