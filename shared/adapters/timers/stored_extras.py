"""The proof and the trace of a timer in the JSON that an engine stores: fields that an earlier version ignores."""

from typing import Any, NamedTuple

from shared.core.values.jsontext import parse_json
from shared.core.values.traceparent import TRACEPARENT, find_traceparent
from shared.messages import Proof, Timer

_PROOF, _TRACEPARENT = ',"proof":', f',"{TRACEPARENT}":'


class Extras(NamedTuple):
    """What a timer can have beside its reference; each is empty in a timer of an earlier version."""

    proof: Proof | None = None
    traceparent: str = ""


def with_extras(stored: str, timer: Timer) -> str:
    """Return the JSON object of a timer with its proof and its trace; unchanged if it has none.

    Args:
        stored: A JSON object that is not empty.
        timer: The timer.
    """
    if timer.proof:
        stored = f"{stored[:-1]}{_PROOF}{timer.proof.dump()}}}"
    return f'{stored[:-1]}{_TRACEPARENT}"{timer.traceparent}"}}' if timer.traceparent else stored


def find_extras(stored: str) -> Extras:
    """Return what the JSON object of a timer has beside its reference; a value of another form counts as none.

    Raises:
        ValueError: The text is not JSON.
    """
    return read_extras(parse_json(stored)) if _PROOF in stored or _TRACEPARENT in stored else Extras()


def read_extras(fields: dict[str, Any]) -> Extras:
    """Return what the fields of a stored timer have beside its reference."""
    return Extras(Proof.read(fields.get("proof")), find_traceparent(fields.get(TRACEPARENT)))
