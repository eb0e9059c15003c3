"""Stored timers with proofs: an earlier version reads them, and this version reads those of an earlier one."""

import json

import pytest

from shared.adapters.events.cloudevents import Event, parse_proof, with_proof
from shared.adapters.timers.nats.schedules import body_of, timer_of
from shared.adapters.timers.sqlite.store import StoredTimer, row_of
from shared.core.values.objects import ObjectRef, ref_of
from shared.messages import Proof, Purpose, Timer
from tests.builders import NOW, job, not_none

PROOF = Proof(resource_version="12345", due_at=NOW, finished_at=NOW, ttl_from="annotation a/ttl", signature="a" * 64)
PLAIN = Timer(ref=ref_of(job()), purpose=Purpose.EXPIRE, due_at=NOW)
PROVEN = PLAIN.model_copy(update={"proof": PROOF})


def stored(timer, ref=None):
    uid, purpose, due_us, fire_us, attempts, text = row_of(timer, timer.due_at)
    return StoredTimer(1, uid, purpose, due_us, fire_us, attempts, 1, ref or text)


@pytest.mark.parametrize("timer", [PLAIN, PROVEN], ids=["plain", "proven"])
def test_timer_is_read_as_it_was_stored(timer):
    assert stored(timer).timer() == timer
    assert timer_of(body_of(timer)) == timer
    assert Timer.model_validate_json(timer.model_dump_json(by_alias=True)) == timer


def test_timer_without_a_proof_is_stored_as_by_an_earlier_version():
    assert "proof" not in stored(PLAIN).ref
    assert "proof" not in json.loads(body_of(PLAIN))
    assert "proof" not in json.loads(PLAIN.model_dump_json(by_alias=True))


def test_earlier_version_finds_its_fields_in_a_timer_with_a_proof():
    """It reads the fields that it knows by name, and ignores the others."""
    plain, proven = json.loads(stored(PLAIN).ref), json.loads(stored(PROVEN).ref)
    assert {name: proven[name] for name in plain} == plain
    plain, proven = json.loads(body_of(PLAIN)), json.loads(body_of(PROVEN))
    assert {name: proven[name] for name in plain} == plain


@pytest.mark.parametrize("proof", ["7", "{}", '{"signature":"x"}', '"x"'])
def test_stored_proof_that_cannot_be_read_is_none(proof):
    ref = f'{stored(PLAIN).ref[:-1]},"proof":{proof}}}'
    body = f'{body_of(PLAIN).decode()[:-1]},"proof":{proof}}}'.encode()

    assert stored(PLAIN, ref).timer() == PLAIN
    assert timer_of(body) == PLAIN


def test_name_that_looks_like_a_proof_is_a_name():
    named = Timer(ref=ObjectRef("v1", "Pod", "a", ',"proof":{}', "uid"), purpose=Purpose.EXPIRE, due_at=NOW)

    assert stored(named).timer() == named


def test_event_carries_a_proof_of_some_hundred_bytes():
    event = with_proof(Event(id="1", source="watch", type="dev.knative.apiserver.resource.add"), PROOF)

    assert parse_proof(event) == PROOF
    assert len(event.extensions["proof"]) < 300


@pytest.mark.parametrize("text", ["", "null", "{", "[" * 100_000, '{"signature": "z"}', "7"])
def test_event_with_an_unreadable_proof_has_none(text):
    event = Event(id="1", source="s", type="t", extensions={"proof": text} if text else {})

    assert parse_proof(event) is None
    assert not_none(event)


def test_timer_has_its_proof_and_its_trace_or_either_of_the_two():
    traced = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    for timer in (PLAIN.model_copy(update=traced), PROVEN.model_copy(update=traced)):
        assert stored(timer).timer() == timer
        assert timer_of(body_of(timer)) == timer
