"""A timer as an engine stores it: its reference, its proof and its trace as JSON."""

from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from shared.adapters.timers.times import instant_of
from shared.core.values.objects import ObjectRef
from shared.core.values.traceparent import TRACEPARENT, find_traceparent
from shared.errors import EventError
from shared.messages import ATTEMPTS_COUNTED_MAX, Proof, Purpose, Timer

_REF = TypeAdapter(ObjectRef)
_PURPOSES = {purpose.value: purpose for purpose in Purpose}


def ref_text(timer: Timer) -> str:
    """Return the reference of a timer as a JSON object.

    Raises:
        EventError: The reference is text that cannot be stored (half of a surrogate pair).
    """
    try:
        return _REF.dump_json(timer.ref).decode()
    except PydanticSerializationError as error:
        raise EventError(f"ref: expected Unicode text, got {timer.ref!r}") from error


def with_extras(stored: str, timer: Timer) -> str:
    """Return a JSON object, which is not empty, with the proof and the trace of a timer; older versions ignore them."""
    if timer.proof:
        stored = f'{stored[:-1]},"proof":{timer.proof.dump()}}}'
    return f'{stored[:-1]},"{TRACEPARENT}":"{timer.traceparent}"}}' if timer.traceparent else stored


def restored(purpose: str, due_us: int, attempts: int, ref: Any, extras: dict[str, Any]) -> Timer:
    """Return a timer that was stored.

    Args:
        purpose: Its purpose. An unknown one is from a later version: the timer is delivered as it was set.
        due_us: When it is due, in microseconds since 1970.
        attempts: Its failed attempts.
        ref: The parsed JSON of its reference.
        extras: The parsed JSON that has its proof and its trace; a value of another form counts as none.

    Raises:
        ValueError: Another program stored it.
    """
    return Timer.model_construct(
        ref=_REF.validate_python(ref),
        purpose=cast(Purpose, _PURPOSES.get(purpose, purpose)),
        due_at=instant_of(due_us),
        attempts=min(attempts, ATTEMPTS_COUNTED_MAX),
        proof=Proof.read(extras.get("proof")),
        traceparent=find_traceparent(extras.get(TRACEPARENT)),
    )
