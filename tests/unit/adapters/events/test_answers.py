"""The adapter between HTTP and a function, without a server."""

from typing import Any

import pytest
from starlette.requests import Request

from shared.adapters.events.answers import answering
from shared.adapters.events.cloudevents import EVENT_BYTES_MAX
from shared.errors import ConflictError, EventError, ForbiddenError, PermanentError, TryLaterError
from shared.messages import SweepStep

pytestmark = pytest.mark.anyio

HEADERS = [(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"/s"), (b"ce-type", b"t")]


def request(*chunks, gone=False):
    """A POST whose body comes in chunks; the client may go away before the last one."""
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.disconnect"} if gone else {"type": "http.request", "body": b"", "more_body": False})
    taken: list[dict[str, Any]] = []

    async def receive():
        taken.append(messages[len(taken)])
        return taken[-1]

    headers = [*HEADERS, (b"content-type", b"application/json")]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive), taken


def raising(error):
    @answering
    async def function(event):
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (EventError("uid: expected text"), 422, None),
        (EventError("body: expected JSON", status=400), 400, None),
        (PermanentError("refused"), 422, None),
        (ForbiddenError("forbidden"), 422, None),
        (TryLaterError("busy"), 503, "1"),
        (TryLaterError("busy", retry_after_seconds=0.0), 503, "0"),
        (TryLaterError("busy", retry_after_seconds=2.01), 503, "3"),
    ],
)
async def test_each_error_has_the_status_that_knative_understands(error, status, retry_after):
    answer = await raising(error)(request()[0])

    assert (answer.status_code, answer.body.decode()) == (status, f"{error}\n")
    assert answer.headers.get("retry-after") == retry_after


@pytest.mark.parametrize("error", [RuntimeError("bug"), ConflictError("uncaught")])
async def test_bug_is_raised_to_the_framework(error):
    with pytest.raises(type(error)):
        await raising(error)(request()[0])


async def test_reply_with_an_unprintable_id_is_refused():
    @answering
    async def function(event):
        return SweepStep.model_construct(sweep_id="a\nb")

    answer = await function(request()[0])

    assert answer.status_code == 400
    assert bytes(answer.body).startswith(b"id: expected printable text")


async def test_body_beyond_the_limit_is_not_read_to_its_end():
    half = b"x" * (EVENT_BYTES_MAX // 2 + 1)
    asked, taken = request(half, half, half, half)

    assert (await raising(RuntimeError())(asked)).status_code == 413
    assert len(taken) == 2


async def test_client_disconnect_is_a_400():
    answer = await raising(RuntimeError())(request(b"{", gone=True)[0])

    assert answer.status_code == 400


async def test_http_function_keeps_its_name():
    @answering
    async def schedule(event):
        """Answer with a timer."""

    assert (schedule.__name__, schedule.__doc__) == ("schedule", "Answer with a timer.")
