"""After an outage much is overdue at once: when each object's turn is, without anything to remember."""

import hashlib
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def jittered(uid: str, now: datetime, over: timedelta) -> datetime:
    """The next turn of an object, after now and within that time.

    Turns come round with the clock, each object's at a place of its own, so whoever asks again before it is told the
    same instant.

    Args:
        uid: Of the object; its turns follow from it.
        now: Aware.
        over: How long one round is; longer than nothing.
    """
    digest = hashlib.sha256(uid.encode(errors="replace")).digest()
    place = over * (int.from_bytes(digest[:8], "big") / 2**64)
    try:
        return now + over - (now - _EPOCH - place) % over
    except OverflowError:
        return now
