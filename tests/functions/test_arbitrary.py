"""Arbitrary requests: no function answers 5xx. The apps run as ASGI, since no HTTP client sends such requests."""

import json

import pytest
from functions_framework.aio import create_asgi_app
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.bootstrap.build import build
from shared.bootstrap.start import loading_for
from tests.builders import ROOT
from tests.functions.wire import STRUCTURED, TAKEN, timer

pytestmark = pytest.mark.anyio

FUNCTIONS = pytest.mark.parametrize("name", list(TAKEN))
QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

_NAMES = st.sampled_from(
    [
        *(b"content-type", b"content-length", b"traceparent", b"ce-", b"ce-x-y", b"ce-data", b"ce-extensions"),
        *(b"ce-id", b"ce-source", b"ce-type", b"ce-specversion", b"ce-time", b"ce-subject", b"ce-datacontenttype"),
    ]
)
_VALUES = st.binary(max_size=20) | st.sampled_from(
    [
        *(b"1.0", b"application/json", STRUCTURED.encode(), b"application/cloudevents", b"%", b"%00", b"%e2%80"),
        *(type_.encode() for type_, _ in TAKEN.values()),
    ]
)
_TEXT = st.text(max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


async def status_of(app, headers, body):
    return (await answer_of(app, headers, body))[0]["status"]


async def answer_of(app, headers, body):
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    await app(scope, receive, send)
    return sent


@pytest.fixture
def process(config):
    return build(config)


@pytest.fixture
def app(process, name):
    with loading_for(process):
        return create_asgi_app(name, str(ROOT / "functions" / f"{name}.py"), "http")


def headers_of(type_, content_type="application/json"):
    event = {"content-type": content_type, "ce-specversion": "1.0", "ce-id": "1", "ce-source": "/", "ce-type": type_}
    return [(name.encode(), value.encode()) for name, value in event.items()]


@FUNCTIONS
@QUICK
@given(headers=st.lists(st.tuples(_NAMES, _VALUES), max_size=8), body=st.binary(max_size=64))
async def test_arbitrary_bytes_are_answered_without_a_bug(app, name, headers, body):
    assert await status_of(app, headers, body) < 500


@FUNCTIONS
@QUICK
@given(data=_JSON)
async def test_arbitrary_data_is_answered_without_a_bug(app, name, data):
    type_, _ = TAKEN[name]
    assert await status_of(app, headers_of(type_), json.dumps(data).encode()) < 500


@FUNCTIONS
@QUICK
@given(envelope=st.dictionaries(_TEXT | st.sampled_from(["id", "data", "data_base64", "time", "extensions"]), _JSON))
async def test_arbitrary_envelope_is_answered_without_a_bug(app, name, envelope):
    type_, data = TAKEN[name]
    body = json.dumps({"specversion": "1.0", "id": "1", "source": "/", "type": type_, "data": data, **envelope})
    assert await status_of(app, [(b"content-type", STRUCTURED.encode())], body.encode()) < 500


_REQUESTS = st.tuples(st.dictionaries(_NAMES, _VALUES, max_size=8), st.binary(max_size=64)) | st.builds(
    lambda type_, more, data: ({**dict(headers_of(type_)), **more}, json.dumps(data).encode()),
    st.sampled_from([type_ for type_, _ in TAKEN.values()]),
    st.dictionaries(_NAMES, _VALUES, max_size=1),
    st.sampled_from([data for _, data in TAKEN.values()]) | _JSON,
)


@FUNCTIONS
@QUICK
@given(request=_REQUESTS)
async def test_function_that_is_called_directly_answers_as_over_http(app, process, name, request):
    headers, body = request
    start, *parts = await answer_of(app, list(headers.items()), body)
    over_http = {key.decode("latin-1"): value.decode("latin-1") for key, value in start["headers"]}
    over_http.pop("content-length", None)

    direct = await process.functions[name](
        {key.decode(): value.decode("latin-1") for key, value in headers.items()}, body
    )

    assert (direct.status, dict(direct.headers)) == (start["status"], over_http)
    assert direct.body == b"".join(part.get("body", b"") for part in parts)


# No `st.data()` in an async test: Hypothesis ends a draw with a BaseException. A task that raises it loses it,
# and a later test logs it as "never retrieved" when the task is collected.
@FUNCTIONS
@QUICK
@given(way=st.lists(st.integers(0, 20), max_size=4), last=st.integers(0, 20), other=_JSON)
async def test_data_with_one_arbitrary_part_is_answered_without_a_bug(app, name, way, last, other):
    type_, good = TAKEN[name]
    broken = json.loads(json.dumps(good or {"kinds": ["v1/Pod"], "continueToken": "", "sweepId": "s", "step": 1}))
    place = broken
    for turn in way:
        inner = [value for value in (place.values() if isinstance(place, dict) else place) if value]
        inner = [value for value in inner if isinstance(value, dict | list)]
        place = inner[turn % len(inner)] if inner else place
    keys = list(place) if isinstance(place, dict) else range(len(place))
    place[keys[last % len(keys)]] = other
    type_ = "dev.ttlafterfinished.sweep.continue" if name == "sweep" else type_

    assert await status_of(app, headers_of(type_), json.dumps(broken).encode()) < 500


@pytest.mark.parametrize("name", ["timers"])
@QUICK
@given(text=st.text(min_size=1, max_size=20))
async def test_timer_for_any_name_in_any_script_is_stored(app, name, text):
    data = {"timers": [timer(name=text, namespace=text)]}
    assert await status_of(app, headers_of(TAKEN[name][0]), json.dumps(data).encode()) < 500
