"""A traceparent from an untrusted sender: it is kept exactly, or it is ignored; and it never changes an answer."""

import json
import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.events.answers import responding
from shared.adapters.events.cloudevents import event_of, parse_event, parse_timers, to_http
from shared.adapters.telemetry.log_lines import JsonFormatter
from shared.adapters.timers.nats.schedules import body_of, timer_of
from shared.adapters.timers.sqlite.store import StoredTimer, row_of
from shared.adapters.tracing.current import current_traceparent, within
from shared.core.values.objects import ref_of
from shared.core.values.traceparent import find_traceparent, flags_of, span_id_of, trace_id_of
from shared.messages import Purpose, Timer, TimersSet
from tests.builders import NOW, job

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PLAIN = Timer(ref=ref_of(job()), purpose=Purpose.EXPIRE, due_at=NOW)
LINE = logging.LogRecord("ttl", logging.INFO, "", 0, "a line", None, None)

HEX = "0123456789abcdef"
traceparents = st.builds(
    "00-{}-{}-{}".format,
    st.text(HEX, min_size=32, max_size=32).filter(lambda text: text.strip("0")),
    st.text(HEX, min_size=16, max_size=16).filter(lambda text: text.strip("0")),
    st.text(HEX, min_size=2, max_size=2),
)
WRONG = {
    "empty": "",
    "other version": f"01{GOOD[2:]}",
    "invalid version": f"ff{GOOD[2:]}",
    "upper case": GOOD.upper(),
    "trace of zeros": f"00-{'0' * 32}-{GOOD[36:]}",
    "span of zeros": f"{GOOD[:36]}{'0' * 16}-01",
    "too long": f"{GOOD}-00",
    "very long": GOOD + "0" * 100_000,
    "line break": f"{GOOD}\n",
    "other digits": GOOD.replace("0", "٠"),  # noqa: RUF001 - Arabic digits on purpose
    "too short": GOOD[:-1],
}


def timers_of(traceparent):
    """The timers that `timers` stores for a `timer.set` with this attribute."""
    event = event_of(TimersSet(timers=(PLAIN,)), source="s")
    event = replace(event, extensions={"traceparent": traceparent})
    with within(find_traceparent(traceparent)):
        wanted = parse_timers(event)
    assert isinstance(wanted, TimersSet)
    return wanted.timers


@given(traceparents)
def test_traceparent_is_carried_exactly(text):
    assert find_traceparent(text) == text
    assert f"00-{trace_id_of(text)}-{span_id_of(text)}-{flags_of(text):02x}" == text
    (timer,) = timers_of(text)
    uid, purpose, due_us, fire_us, attempts, stored = row_of(timer, timer.due_at)
    for read in (StoredTimer(1, uid, purpose, due_us, fire_us, attempts, 1, stored).timer(), timer_of(body_of(timer))):
        assert read == timer
        event = parse_event(*to_http(event_of(read, source="s")))
        assert event.extensions["traceparent"] == text


@given(st.one_of(st.text(), st.sampled_from(list(WRONG.values())), st.from_regex(r"00-[0-9a-fA-F-]+")))
def test_any_text_is_kept_or_ignored(text):
    found = find_traceparent(text)

    assert found in ("", text)
    assert not found or (len(found) == 55 and found.isascii() and found.isprintable())


@pytest.mark.parametrize("value", [*WRONG.values(), None, 7, {}], ids=[*WRONG, "none", "number", "object"])
def test_wrong_traceparent_reaches_no_stored_timer(value):
    (timer,) = timers_of(value)

    assert timer == PLAIN
    stored = f'{row_of(PLAIN, PLAIN.due_at)[-1][:-1]},"traceparent":{json.dumps(value)}}}'
    assert StoredTimer(1, "u", "expire", 0, 0, 0, 1, stored).timer().traceparent == ""
    assert Timer.model_validate_json(f'{PLAIN.model_dump_json(by_alias=True)[:-1]},"traceparent":{json.dumps(value)}}}')


@pytest.mark.anyio
@pytest.mark.parametrize(("text", "carried"), [(GOOD, GOOD), *((one, "") for one in WRONG.values())])
async def test_answer_and_log_line_carry_a_good_traceparent_only(text, carried):
    seen = []

    async def function(event):
        seen.append(JsonFormatter().format(LINE))
        return TimersSet(timers=(PLAIN,))

    headers, body = to_http(event_of(PLAIN, source="s"))
    answer = await responding(function)({**headers, "ce-traceparent": text.strip(), "ce-tracestate": "a=b"}, body)

    good = text.strip() == GOOD
    assert answer.status == 200
    assert answer.headers.get("ce-traceparent", "") == (GOOD if good else carried)
    assert "ce-tracestate" not in answer.headers
    assert json.loads(seen[0]).get("trace_id", "") == (trace_id_of(GOOD) if good else "")
    assert current_traceparent() == ""


def test_event_and_stored_timer_without_a_trace_are_those_of_an_earlier_version():
    assert "traceparent" not in event_of(PLAIN, source="s").extensions
    assert "traceparent" not in row_of(PLAIN, PLAIN.due_at)[-1]
    assert b"traceparent" not in body_of(PLAIN)


def test_data_of_a_timer_never_has_its_trace():
    """An earlier version would ignore it there; the attribute is the form of CloudEvents."""
    timer = PLAIN.model_copy(update={"traceparent": GOOD})

    assert event_of(timer, source="s").data == event_of(PLAIN, source="s").data
    assert timer.id == PLAIN.id
