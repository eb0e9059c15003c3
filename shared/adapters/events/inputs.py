"""Parse what functions accept beside their own message: proofs, the timers of archives and tasks, ticks."""

import json
from dataclasses import replace

from shared.adapters.events.cloudevents import TICK, Event, parse_message
from shared.adapters.tracing.current import current_traceparent
from shared.core.values.objects import parse_instant, quote
from shared.errors import EventError
from shared.messages import ArchiveDone, ObjectArchived, Proof, Purpose, SweepStep, Timer, TimersSet
from shared.ports import FiredTask


def parse_timers(event: Event) -> TimersSet | FiredTask | None:
    """Parse the timers to set: those of a `timer.set` event, or that of an `object.archived` event, if it has one.

    The timers carry the trace of the event.

    A `timer.fired` event with the attribute `task` is a task of Cloud Tasks. The Broker's `timer.fired` has none.

    Raises:
        EventError: The event has another type, or its data is invalid.
    """
    if event.type == Timer.type and event.extensions.get("task"):
        return _parse_task(event)
    if event.type != ObjectArchived.type:
        return _traced(parse_message(event, TimersSet))
    timer = parse_message(event, ObjectArchived).timer
    return None if timer is None else _traced(TimersSet(timers=(timer,)))


def _traced(wanted: TimersSet) -> TimersSet:
    update = {"traceparent": current_traceparent()}
    if not update["traceparent"]:
        return wanted
    return wanted.model_copy(update={"timers": tuple(one.model_copy(update=update) for one in wanted.timers)})


def _parse_task(event: Event) -> FiredTask:
    try:
        scheduled_at = parse_instant(event.extensions.get("scheduledat"))
    except ValueError as error:
        raise EventError(f"scheduledat: {error}") from None
    timer = parse_message(event, Timer).model_copy(update={"traceparent": current_traceparent()})
    return FiredTask(timer, event.extensions["task"], scheduled_at)


def parse_archive_timer(event: Event) -> Timer:
    """Parse what has an object archived: a `timer.fired` event, or `archive.done`, after which it is looked up again.

    Raises:
        EventError: The event has another type, or its data is invalid.
    """
    if event.type != ArchiveDone.type:
        return parse_message(event, Timer)
    done = parse_message(event, ArchiveDone)
    return Timer(ref=done.ref, purpose=Purpose.ARCHIVE, due_at=done.archived_at)


_ATTRIBUTE = "proof"


def with_proof(event: Event, proof: Proof) -> Event:
    """Return the event of a changed object with the proof of the decision about it."""
    return replace(event, extensions={**event.extensions, _ATTRIBUTE: proof.dump()})


def parse_proof(event: Event) -> Proof | None:
    """Return the proof of the decision about the object of an event; None without one that can be read."""
    try:
        return Proof.read(json.loads(event.extensions.get(_ATTRIBUTE, "null")))  # noqa: TID251 - a short header
    except (ValueError, RecursionError):
        return None


PURPOSE = "purpose"
"""The extension attribute of a tick on which the Triggers filter: `usage`, or absent for a sweep."""


def check_tick(event: Event) -> None:
    """Check that an event is a tick; it has no data.

    Raises:
        EventError: The event has another type.
    """
    if event.type != TICK:
        raise EventError(f"type: expected {TICK}, got {quote(event.type)}")


def parse_sweep(event: Event) -> SweepStep:
    """Parse the step of a sweep: the one in a `sweep.continue` event, or the first step for a PingSource event.

    Raises:
        EventError: The event has another type, or its data is invalid.
    """
    return SweepStep() if event.type == TICK else parse_message(event, SweepStep)
