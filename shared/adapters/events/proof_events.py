"""The proof of a decision in the event of a changed object: an extension attribute, which other sources do not send."""

import json
from dataclasses import replace

from shared.adapters.events.cloudevents import Event
from shared.messages import Proof

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
