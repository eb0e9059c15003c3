"""Malformed events: each function answers one 4xx that names the field, and does nothing else."""

import json

import pytest

from tests.builders import having, without
from tests.functions.wire import DUE, FIRED, REPORTED, SET, STRUCTURED, TAKEN, as_json, binary, structured, timer

pytestmark = pytest.mark.anyio

FUNCTIONS = pytest.mark.parametrize("name", list(TAKEN))
ONE = pytest.mark.parametrize("name", ["schedule"])
"""For the tables of the envelope: one adapter reads it for each function, as the tests at FUNCTIONS prove."""

MEBIBYTE = 1024 * 1024


async def refused(functions, config, name, request, *words, method="POST"):
    """Send it; assert that it is refused with these words, and that nothing happened."""
    config.cluster.put(DUE)
    answer = await functions.post(name, *request, method=method)
    assert 400 <= answer.status < 500, answer.text
    assert answer.status not in (404, 408, 409, 429), "Knative would retry it"
    for word in words:
        assert word in answer.text
    assert "Traceback" not in answer.text
    assert answer.text.count("\n") == 1, "one line"
    assert len(answer.text) < 500, "it echoes what was sent"
    assert config.cluster.calls == []
    assert config.timers.pending == {}
    assert config.publisher.published == []
    return answer


# The envelope


@FUNCTIONS
@pytest.mark.parametrize("field", ["id", "source", "type", "specversion"])
async def test_missing_required_attribute_is_refused(functions, config, name, field):
    type_, data = TAKEN[name]
    await refused(functions, config, name, binary(type_, data, **{field: None}), f"{field}:")
    await refused(functions, config, name, structured(type_, data, **{field: ...}), f"{field}:")


@ONE
@pytest.mark.parametrize("field", ["id", "source", "type", "specversion"])
@pytest.mark.parametrize("value", ["", None, 5, True, ["x"], {"a": 1}], ids=repr)
async def test_required_attribute_that_is_not_text_is_refused(functions, config, name, field, value):
    type_, data = TAKEN[name]
    await refused(functions, config, name, structured(type_, data, **{field: value}), f"{field}:")
    if value == "":
        await refused(functions, config, name, binary(type_, data, **{field: value}), f"{field}:")


@ONE
@pytest.mark.parametrize("version", ["0.3", "1.1", "2.0", "1"])
async def test_other_specversion_is_refused(functions, config, name, version):
    type_, data = TAKEN[name]
    await refused(functions, config, name, binary(type_, data, specversion=version), "specversion:", "1.0")
    await refused(functions, config, name, structured(type_, data, specversion=version), "specversion:", "1.0")


@FUNCTIONS
async def test_other_event_type_is_refused(functions, config, name):
    _, data = TAKEN[name]
    await refused(functions, config, name, binary("com.example.other", data), "type:", "com.example.other")
    await refused(functions, config, name, structured("com.example.other", data), "type:", "com.example.other")


@ONE
@pytest.mark.parametrize("time", ["yesterday", "2026-01-01", "2026-01-01T00:00:00", "9999-12-31T23:59:59-23:00"])
async def test_invalid_time_is_refused(functions, config, name, time):
    type_, data = TAKEN[name]
    await refused(functions, config, name, binary(type_, data, time=time), "time:")
    await refused(functions, config, name, structured(type_, data, time=time), "time:")


@ONE
@pytest.mark.parametrize("character", ["\n", "\r\nce-type: x", "\0", "\x7f", "\u2028"], ids=ascii)
@pytest.mark.parametrize("field", ["id", "source", "type", "subject", "kind"])
async def test_attribute_with_forbidden_characters_is_refused(functions, config, name, field, character):
    type_, data = TAKEN[name]
    request = structured(type_, data, **{field: f"a{character}b"})
    await refused(functions, config, name, request, f"{field}:", "printable")


@ONE
async def test_attribute_with_an_encoded_newline_is_refused(functions, config, name):
    type_, data = TAKEN[name]
    await refused(functions, config, name, binary(type_, data, subject="a%0Ab"), "subject:", "printable")


@ONE
@pytest.mark.parametrize("field", ["subject", "kind", "dataschema", "datacontenttype", "extensions"])
async def test_structured_attribute_is_refused(functions, config, name, field):
    type_, data = TAKEN[name]
    await refused(functions, config, name, structured(type_, data, **{field: {"a": [1]}}), f"{field}:")


@ONE
@pytest.mark.parametrize("wrong", ["ID", "my-extension", "a\nb", "x" * 3_000, ""], ids=lambda text: ascii(text)[:20])
async def test_invalid_attribute_name_is_refused(functions, config, name, wrong):
    type_, data = TAKEN[name]
    await refused(functions, config, name, structured(type_, data, **{wrong: "x"}), "attribute name")


@ONE
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"nope",
        b"{'a': 1}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xef\xbb\xbf{}",
        b'"\\ud800"',
    ],
    ids=lambda body: ascii(body)[:16],
)
async def test_unreadable_envelope_is_refused(functions, config, name, body):
    await refused(functions, config, name, ({"content-type": STRUCTURED}, body), "body:")


@ONE
@pytest.mark.parametrize("body", [b"[]", b"null", b"5", b'"text"', b"[{}]"])
async def test_envelope_that_is_not_an_object_is_refused(functions, config, name, body):
    await refused(functions, config, name, ({"content-type": STRUCTURED}, body), "body:", "object")


@FUNCTIONS
async def test_batch_is_415(functions, config, name):
    type_, data = TAKEN[name]
    _, body = structured(type_, data)
    headers = {"content-type": "application/cloudevents-batch+json"}
    answer = await refused(functions, config, name, (headers, b"[" + body + b"]"), "content-type:", "one event")
    assert answer.status == 415


@ONE
@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "application/jsonp", "x" * 4_000, ""])
async def test_other_content_type_is_415(functions, config, name, content_type):
    type_, data = TAKEN[name]
    headers, body = binary(type_, data)
    request = {**headers, "content-type": content_type}, body or b"{}"
    assert (await refused(functions, config, name, request, "content-type:")).status == 415


@ONE
async def test_data_of_another_content_type_is_refused(functions, config, name):
    type_, data = TAKEN[name]
    await refused(functions, config, name, structured(type_, data, datacontenttype="text/xml"), "datacontenttype:")


@ONE
@pytest.mark.parametrize("encoded", ["!", "e30", 5, None, ["e30="], {}], ids=repr)
async def test_invalid_data_base64_is_refused(functions, config, name, encoded):
    type_, _ = TAKEN[name]
    await refused(functions, config, name, structured(type_, data=..., data_base64=encoded), "data_base64:")


@FUNCTIONS
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_method_is_405(functions, config, name, method):
    answer = await refused(functions, config, name, ({}, b""), "method:", method, method=method)
    assert answer.status == 405


@FUNCTIONS
@pytest.mark.parametrize("chunked", [False, True], ids=["content-length", "chunked"])
async def test_three_mebibytes_is_413(functions, config, name, chunked):
    type_, _ = TAKEN[name]
    headers, _ = binary(type_)
    body = json.dumps({"x": "y" * 3 * MEBIBYTE}).encode()

    async def chunks():
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    answer = await refused(functions, config, name, (headers, chunks() if chunked else body), "body:")
    assert answer.status == 413


@FUNCTIONS
async def test_raw_control_characters_in_headers_are_refused(functions, config, name):
    head = f"POST /{name} HTTP/1.1\r\nhost: functions\r\ncontent-length: 0\r\nce-id: a\0b\r\n\r\n"
    answer = await functions.post_raw(head.encode())
    assert answer.startswith("HTTP/1.1 400")
    assert config.cluster.calls == []


@FUNCTIONS
async def test_request_without_an_event_is_refused(functions, config, name):
    await refused(functions, config, name, ({}, b""), "specversion:")
    await refused(functions, config, name, ({"content-type": "application/json"}, b"{}"), "specversion:")


# The data


WITH_DATA = pytest.mark.parametrize("name", ["schedule", "timers", "expire"])


@WITH_DATA
async def test_missing_data_is_refused(functions, config, name):
    type_, _ = TAKEN[name]
    await refused(functions, config, name, binary(type_), "data:")
    await refused(functions, config, name, structured(type_), "data:")


@ONE
@pytest.mark.parametrize("data", [[], [{}], "text", 5, 5.5, True, b"null"], ids=repr)
async def test_data_that_is_not_an_object_is_refused(functions, config, name, data):
    type_, _ = TAKEN[name]
    await refused(functions, config, name, binary(type_, data), "data:", "object")
    if not isinstance(data, bytes):
        await refused(functions, config, name, structured(type_, data), "data:", "object")


@ONE
@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"nope",
        b"\xff\xfe\x00",
        b"{'a': 1}",
        b'{"a": "\\ud800"}',
        b'{"a": "\x00"}',
        b'{"a":' * 100_000,
        b'{"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"a": ' + b"9" * 5_000 + b"}",
        b'{"a": 1} {"b": 2}',
    ],
    ids=lambda data: ascii(data)[:16],
)
async def test_unreadable_data_is_refused(functions, config, name, data):
    type_, _ = TAKEN[name]
    await refused(functions, config, name, binary(type_, data), "data")


@pytest.mark.parametrize("field", ["apiVersion", "kind", "metadata"])
async def test_data_that_is_not_a_kubernetes_object_is_refused(functions, config, field):
    await refused(functions, config, "schedule", binary(REPORTED, without(DUE, field)), f"data.{field}")


@pytest.mark.parametrize("field", ["name", "uid"])
@pytest.mark.parametrize("value", [..., "", None, 5, ["x"], "a\nb", "\0"], ids=repr)
async def test_object_without_identity_is_refused(functions, config, field, value):
    path = f"metadata.{field}"
    obj = without(DUE, path) if value is ... else having(DUE, path, value)
    await refused(functions, config, "schedule", binary(REPORTED, obj), f"data.{path}")


@pytest.mark.parametrize("metadata", [None, [], "text", 5], ids=repr)
async def test_object_with_invalid_metadata_is_refused(functions, config, metadata):
    await refused(functions, config, "schedule", binary(REPORTED, {**DUE, "metadata": metadata}), "data.metadata")


@pytest.mark.parametrize("field", ["apiVersion", "kind", "name", "uid"])
@pytest.mark.parametrize("value", ["", None, 5, ["x"]], ids=repr)
async def test_timer_without_identity_is_refused(functions, config, field, value):
    poison = timer(**{field: value})
    await refused(functions, config, "expire", binary(FIRED, poison), "data.ref", field)
    await refused(functions, config, "timers", binary(SET, {"timers": [timer(), poison]}), "data.timers.1.ref", field)


@pytest.mark.parametrize(
    ("poison", "field"),
    [
        (timer(due_at="2026-01-01T00:00:00"), "dueAt"),
        (timer(due_at="soon"), "dueAt"),
        (timer(purpose="revive"), "purpose"),
        ({**timer(), "purpose": None}, "purpose"),
        ({**timer(), "dueAt": None}, "dueAt"),
        (without(timer(), "dueAt"), "dueAt"),
        (without(timer(), "ref"), "ref"),
        ({**timer(), "ref": "Job ci/x"}, "ref"),
    ],
    ids=["naive", "no-time", "purpose", "no-purpose", "null-due", "no-due", "no-ref", "ref-is-text"],
)
async def test_invalid_timer_is_refused(functions, config, poison, field):
    await refused(functions, config, "expire", binary(FIRED, poison), f"data.{field}")
    await refused(functions, config, "timers", binary(SET, {"timers": [timer(), poison]}), f"data.timers.1.{field}")


@pytest.mark.parametrize("name", ["timers", "expire"])
async def test_timer_outside_the_calendar_is_refused(functions, config, name):
    poison = timer(due_at="0001-01-01T00:00:00+14:00")
    data = {"timers": [poison]} if name == "timers" else poison
    await refused(functions, config, name, binary(TAKEN[name][0], data), "dueAt")


async def test_timer_with_an_unprintable_uid_is_refused(functions, config):
    await refused(functions, config, "timers", binary(SET, {"timers": [timer(uid="a\nb")]}), "uid")


@pytest.mark.parametrize("count", [0, 501])
async def test_too_few_or_too_many_timers_is_refused(functions, config, count):
    wanted = [timer(uid=f"uid-{number}") for number in range(count)]
    await refused(functions, config, "timers", binary(SET, {"timers": wanted}), "data.timers:", "500" if count else "1")


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"kinds": "v1/Pod"}, "data.kinds"),
        ({"kinds": [5]}, "data.kinds.0"),
        ({"kinds": ["v1/Pod"] * 1_001}, "data.kinds"),
        ({"step": "x"}, "data.step"),
        ({"step": -1}, "data.step"),
        ({"step": 10**4_300 - 1}, "data.step"),
        ({"continueToken": 5}, "data.continueToken"),
        ({"counts": {"deleted": 10**4_300 - 1}}, "data.counts"),
        ({"sweepId": "x\x1b[2J"}, "data.sweepId"),
        ({"sweepId": "x" * 501}, "data.sweepId"),
        ({"passedOver": ["x\u202e"]}, "data.passedOver.0"),
        ([], "data"),
    ],
)
async def test_invalid_sweep_step_is_refused(functions, config, data, field):
    await refused(functions, config, "sweep", binary("dev.ttlafterfinished.sweep.continue", data), field)


# Unusual data that is valid


async def test_last_of_duplicate_keys_is_used(functions, config):
    body = as_json(DUE).replace(b'"kind": "Job"', b'"kind": "CronJob", "kind": "Job"')
    assert (await functions.post("schedule", *binary(REPORTED, body))).status == 200


async def test_number_beyond_64_bits_is_accepted(functions):
    obj = having(DUE, "spec.parallelism", 10**300)
    assert (await functions.post("schedule", *binary(REPORTED, obj))).status == 200
    assert (await functions.post("schedule", *structured(REPORTED, obj))).status == 200


async def test_ttl_beyond_64_bits_keeps_the_object(functions, config):
    answer = await functions.post("schedule", *binary(REPORTED, having(DUE, "spec.ttlSecondsAfterFinished", 10**300)))
    assert answer.status == 204
    assert config.telemetry.verdicts() == [("kept", "invalid-ttl")]


async def test_object_just_below_the_limit_is_accepted(functions):
    obj = having(DUE, "spec.note", "y" * (2 * MEBIBYTE - 4_096))
    assert (await functions.post("schedule", *binary(REPORTED, obj))).status == 200


async def test_extensions_may_be_numbers_and_booleans_in_json(functions):
    request = structured(REPORTED, DUE, knativebrokerttl=255, sampled=True, subject="x", time="2026-01-01T00:00:00Z")
    assert (await functions.post("schedule", *request)).status == 200
