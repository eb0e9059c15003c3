"""Turn a function from event to message into an HTTP function with the statuses that Knative understands.

Knative retries 5xx, 404, 408, 409 and 429. It turns a 2xx whose body is not a CloudEvent into a 502. The answers:

    done                    204, empty
    done, with a message    200 with the message as a CloudEvent, which the Broker publishes
    EventError              the error's 4xx: to the dead letter sink; 401 and 403 reject a caller
    PermanentError          422: to the dead letter sink
    TryLaterError           503 with Retry-After: retried
    any other exception     500: a bug; retried, with a stack trace in the log
"""

import functools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from shared.adapters.events.cloudevents import EVENT_BYTES_MAX, Event, event_of, parse_event, to_http
from shared.errors import EventError, PermanentError, TryLaterError
from shared.messages import Message

_log = logging.getLogger("ttl")

Function = Callable[[Event], Awaitable[Message | None]]
Read = Callable[[Mapping[str, str], bytes], Event]
Admission = Callable[[str], Awaitable[None]]
Observer = Callable[[str, int], None]


def answering(
    function: Function, *, read: Read = parse_event, admit: Admission | None = None, observe: Observer | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """Make an HTTP function from a function that takes an event and returns a message.

    Args:
        function: The function.
        read: Reads the event from the headers and the body.
        admit: Called with the Authorization header before the event is read; raises EventError or TryLaterError to
            reject the request. None admits every request.
        observe: Called with the function's name and the status of each answer.
    """

    @functools.wraps(function)
    async def answer(request: Request) -> Response:
        status = 500
        try:
            response = await _answer(function, request, read, admit)
            status = response.status_code
        finally:
            if observe:
                observe(function.__name__, status)
        return response

    return answer


async def _answer(function: Function, request: Request, read: Read, admit: Admission | None) -> Response:
    try:
        if admit:
            await admit(request.headers.get("authorization", ""))
        reply = await function(await read_event(request, read))
        return _accepted(reply, source=f"ttl-after-finished/{function.__name__}")
    except EventError as error:
        return _refusal(function.__name__, error, error.status)
    except PermanentError as error:
        return _refusal(function.__name__, error, 422)
    except TryLaterError as error:
        headers = {"retry-after": str(math.ceil(error.retry_after_seconds))}
        return PlainTextResponse(f"{error}\n", 503, headers=headers)


async def read_event(request: Request, read: Read) -> Event:
    """Read the event of a request; stop reading when the body is longer than an object can be.

    Raises:
        EventError: The request is not a POST of one well-formed CloudEvent.
    """
    if request.method != "POST":
        raise EventError(f"method: expected POST of a CloudEvent, got {request.method}", status=405)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > EVENT_BYTES_MAX:
                break
    except ClientDisconnect:
        raise EventError("body: expected the whole body, but the client disconnected", status=400) from None
    return read(request.headers, bytes(body))


def _accepted(reply: Message | None, *, source: str) -> Response:
    if reply is None:
        return Response(status_code=204)
    headers, body = to_http(event_of(reply, source=source))
    return Response(body, headers=headers)


def _refusal(name: str, error: Exception, status: int) -> Response:
    _log.warning("event refused", extra={"fields": {"function": name, "status": status, "error": str(error)}})
    headers = {"www-authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return PlainTextResponse(f"{error}\n", status, headers=headers)
