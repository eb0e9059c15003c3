"""Turn a function from event to message into one that answers requests with the statuses that Knative understands.

Knative retries 5xx, 404, 408, 409 and 429. It turns a 2xx whose body is not a CloudEvent into a 502. The answers:

    done                    204, empty
    done, with a message    200 with the message as a CloudEvent, which the Broker publishes
    EventError              the error's 4xx: to the dead letter sink; 401 and 403 reject a caller
    PermanentError          422: to the dead letter sink
    TryLaterError           503 with Retry-After: retried
    any other exception     500: a bug; retried, with a stack trace in the log

`answering` is for HTTP. `responding` is for a broker in the same process: it reads and answers the same headers and
bodies by the same code.
"""

import functools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from shared.adapters.events.cloudevents import (
    EVENT_BYTES_MAX,
    Event,
    event_of,
    handling,
    is_traced,
    parse_event,
    to_http,
)
from shared.adapters.tracing.current import note_status
from shared.errors import EventError, PermanentError, TryLaterError
from shared.messages import Message

_log = logging.getLogger("ttl")

Function = Callable[[Event], Awaitable[Message | None]]
Read = Callable[[Mapping[str, str], bytes], Event]
Admission = Callable[[str], Awaitable[None]]
Observer = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class FunctionAnswer:
    """The answer of a function: what an HTTP response has.

    Attributes:
        headers: Their names are in lower case.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


Respond = Callable[[Mapping[str, str], bytes], Awaitable[FunctionAnswer]]
"""Answers a request by its headers, with lower-case names, and its body; raises what is a bug of the function."""


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
        get_body = functools.partial(_read_body, request)
        found = await _respond(function, request.headers, get_body, read=read, admit=admit, observe=observe)
        return Response(found.body, found.status, headers=found.headers)

    return answer


def responding(
    function: Function, *, read: Read = parse_event, admit: Admission | None = None, observe: Observer | None = None
) -> Respond:
    """Make a function that a broker in the same process calls directly; for the arguments, see `answering`."""

    async def respond(headers: Mapping[str, str], body: bytes) -> FunctionAnswer:
        async def get_body() -> bytes:
            return body

        return await _respond(function, headers, get_body, read=read, admit=admit, observe=observe)

    return respond


async def _respond(  # noqa: PLR0913 - the parts of `answering`
    function: Function,
    headers: Mapping[str, str],
    get_body: Callable[[], Awaitable[bytes]],
    *,
    read: Read,
    admit: Admission | None,
    observe: Observer | None,
) -> FunctionAnswer:
    status = 500
    try:
        answer = await _answer(function, headers, get_body, read, admit)
        status = answer.status
    finally:
        if observe:
            observe(function.__name__, status)
    return answer


async def _answer(
    function: Function,
    headers: Mapping[str, str],
    get_body: Callable[[], Awaitable[bytes]],
    read: Read,
    admit: Admission | None,
) -> FunctionAnswer:
    try:
        if admit:
            await admit(headers.get("authorization", ""))
        event = read(headers, await get_body())
    except _REFUSED as error:
        return _refused(function.__name__, error)
    if not is_traced(event):
        return await _handle(function, event)
    with handling(event, function.__name__, headers) as span:
        answer = await _handle(function, event)
        note_status(span, answer.status)
        return answer


_REFUSED = (EventError, PermanentError, TryLaterError)


def _refused(name: str, error: Exception) -> FunctionAnswer:
    if isinstance(error, TryLaterError):
        return _text(f"{error}\n", 503, {"retry-after": str(math.ceil(error.retry_after_seconds))})
    return _refusal(name, error, error.status if isinstance(error, EventError) else 422)


async def _read_body(request: Request) -> bytes:
    """Read the body of a request; stop reading when the body is longer than an object can be.

    Raises:
        EventError: The request is not a POST, or the client disconnected.
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
    return bytes(body)


async def _handle(function: Function, event: Event) -> FunctionAnswer:
    try:
        reply = await function(event)
        if reply is None:
            return FunctionAnswer(204)
        headers, body = to_http(event_of(reply, source=f"ttl-after-finished/{function.__name__}"))
    except _REFUSED as error:
        return _refused(function.__name__, error)
    return FunctionAnswer(200, headers, body)


def _refusal(name: str, error: Exception, status: int) -> FunctionAnswer:
    _log.warning("event refused", extra={"fields": {"function": name, "status": status, "error": str(error)}})
    return _text(f"{error}\n", status, {"www-authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else {})


def _text(text: str, status: int, headers: Mapping[str, str]) -> FunctionAnswer:
    return FunctionAnswer(status, {"content-type": "text/plain; charset=utf-8", **headers}, text.encode())
