"""Between HTTP and a function: an event in, a CloudEvent or an empty 204 out, errors as statuses Knative understands.

Knative retries 5xx, 404, 408, 409 and 429, and turns a 2xx with a body that is no CloudEvent into a 502. So:

    done                    204, empty
    done, and a message     200, the message as a CloudEvent: the Broker publishes it again
    EventError              its own 4xx: to the dead letter; 401 and 403 are for who may not call at all
    PermanentError          422: to the dead letter
    TryLaterError           503 with Retry-After: again
    anything else           500: a bug; again, and a stack trace in the log
"""

import functools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from shared.adapters.events.cloudevents import BODY_BYTES_MAX, Event, event_of, parse_event, to_http
from shared.errors import EventError, PermanentError, TryLaterError
from shared.messages import Message

_log = logging.getLogger("ttl")
_observers: list[Callable[[str, int], None]] = []

Function = Callable[[Event], Awaitable[Message | None]]
Read = Callable[[Mapping[str, str], bytes], Event]
Admission = Callable[[str], Awaitable[None]]

_admissions: list[Admission] = []


def answering(function: Function, *, read: Read = parse_event) -> Callable[[Request], Awaitable[Response]]:
    """Make an HTTP function of a function from event to message."""

    @functools.wraps(function)
    async def answer(request: Request) -> Response:
        status = 500
        try:
            response = await _answer(function, request, read)
            status = response.status_code
        finally:
            for observer in _observers:
                observer(function.__name__, status)
        return response

    return answer


def observe_answers(observer: Callable[[str, int], None]) -> None:
    """Have `observer` told the function and the status of each answer from now on, in place of the one before."""
    _observers[:] = [observer]


def guard(admission: Admission | None) -> None:
    """Have the functions of this process ask, with a request's Authorization header, before they read anything of it.

    Args:
        admission: Raises EventError or TryLaterError where the request may not pass. None: all may.
    """
    _admissions[:] = [admission] if admission else []


async def _answer(function: Function, request: Request, read: Read) -> Response:
    try:
        for admit in _admissions:
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
    """The event in a request, read no further than an object can be long.

    Raises:
        EventError: The request is not a POST of one well-formed CloudEvent.
    """
    if request.method != "POST":
        raise EventError(f"method: expected POST of a CloudEvent, got {request.method}", status=405)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_BYTES_MAX:
                break
    except ClientDisconnect:
        raise EventError("body: expected all of it, but the sender went away", status=400) from None
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
