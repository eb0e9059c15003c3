"""TTLs as users write them, each with its meaning, and statuses as the controllers of kinds write them."""

import random
from datetime import datetime, timedelta, timezone
from typing import Any

from shared.devserver.apiserver.resources import Object
from tests.simulation.sim_object import MALFORMED, NEVER, SimObject, Ttl

_SECONDS = (0, 1, 2, 7, 15, 40, 60, 90, 150, 240, 400, 650)
_LONG = (86_400, 604_800)
_MALFORMED = ("", "soon", "-5", "1.5h", "1h 30m", "30m1h", "90S", "٣", "NEVER", "1e3", "40000d")
_MALFORMED_INSTANTS = ("", "tomorrow", "2026-03-14", "2026-03-14T15:09:26", "1773500966", "never")


def draw_duration(rng: random.Random) -> tuple[str, Ttl]:
    """The text of an annotation, and what is meant."""
    roll = rng.random()
    if roll < 0.06:
        return "never", NEVER
    if roll < 0.14:
        return rng.choice(_MALFORMED), MALFORMED
    seconds = rng.choice(_LONG if roll < 0.2 else _SECONDS)
    minutes, rest = divmod(seconds, 60)
    texts = [str(seconds), f"{seconds}s", f"{minutes}m{rest}s"] + (
        [f"{seconds // 86_400}d"] if seconds >= 86_400 else []
    )
    return rng.choice(texts), timedelta(seconds=seconds)


def draw_instant(rng: random.Random, now: datetime) -> tuple[str, Ttl]:
    """The text of `expire-at`, and what is meant."""
    if rng.random() < 0.15:
        return rng.choice(_MALFORMED_INSTANTS), MALFORMED
    at = now + timedelta(milliseconds=rng.randrange(-60_000, 300_000))
    if rng.random() < 0.5:
        at = at.replace(microsecond=0)
    zone = timezone(timedelta(minutes=rng.choice((0, 120, -330))))
    text = at.astimezone(zone).isoformat()
    return rng.choice((text, text.replace("+00:00", "Z"))), at


def draw_native(rng: random.Random) -> tuple[Any, Ttl]:
    """The value of spec.ttlSecondsAfterFinished, and what is meant; no API server would take the malformed ones."""
    if rng.random() < 0.05:
        return rng.choice((-1, "60", True, 1.5)), MALFORMED
    seconds = rng.choice(_SECONDS)
    return seconds, timedelta(seconds=seconds)


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def finished_status(obj: SimObject, at: datetime) -> Object:
    """That of an object that finished at an instant; some leave the time to the managed fields."""
    if obj.kind == "Pod":
        terminated = {"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": stamp(at)}}}
        status: Object = {"phase": "Failed" if obj.failed else "Succeeded"}
        return status if obj.moves else status | {"containerStatuses": [terminated]}
    condition = {"type": "Failed" if obj.failed else "Complete", "status": "True"}
    condition |= {} if obj.moves else {"lastTransitionTime": stamp(at)}
    suspended = {"type": "Suspended", "status": "False", "lastTransitionTime": stamp(at)}
    return {"conditions": [suspended, condition]}
