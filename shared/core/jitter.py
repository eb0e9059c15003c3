"""Spread the deletions of objects that are overdue together, for example after an outage, without stored state."""

import hashlib
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def jittered(uid: str, now: datetime, over: timedelta) -> datetime:
    """The next instant for an object's deletion, after `now` and at most `over` later.

    The instants repeat with the period `over`, at an offset that depends only on the uid. So every call before that
    instant returns the same instant.

    Args:
        uid: The object's uid, from which its offset follows.
        now: The current instant, aware.
        over: The time over which deletions are spread; more than zero.
    """
    digest = hashlib.sha256(uid.encode(errors="replace")).digest()
    offset = over * (int.from_bytes(digest[:8], "big") / 2**64)
    try:
        return now + over - (now - _EPOCH - offset) % over
    except OverflowError:
        return now
