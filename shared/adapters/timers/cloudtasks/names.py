"""The names of tasks: the same timer gets the same name, so setting it twice makes one task.

    KEY-DUE-ATTEMPTS[-SUFFIX]

KEY is a hash of the uid and the purpose. It comes first, because sequential prefixes make all calls slower (reference
of CreateTask). Cloud Tasks blocks a name for about an hour after its task was executed or deleted, and for up to 24
hours; a timer that is set again within that time gets a suffix.
"""

import hashlib
import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from shared.messages import Timer, TimerKey

SUFFIXES = 3
"""Suffixes that are tried in order, so that concurrent calls still find one task; then a random one follows."""

_HASH_CHARACTERS = 32  # 128 bits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NAME = re.compile(r"([0-9a-f]{32})-(-?[0-9]{1,20})-[0-9]{1,9}(-[0-9a-f]{1,16})?")


def names_of(timer: Timer) -> Iterator[str]:
    """Return the names of a timer, in the order in which they are tried; the last one is always free."""
    name = _name_of(timer)
    yield name
    for suffix in range(1, SUFFIXES + 1):
        yield f"{name}-{suffix}"
    yield f"{name}-{secrets.token_hex(8)}"


def successor_of(task: str, timer: Timer) -> str:
    """Return the name of the task that continues a task.

    The name follows from the task, so that a task that arrives twice has one successor.
    """
    return f"{_name_of(timer)}-{_digest(task)[:16]}"


def key_in(path: str) -> str:
    """Return KEY of the full name of a task: the tasks of one timer, of which there may be two, have the same one."""
    return path.rpartition("/")[2].partition("-")[0]


def is_name_of(key: TimerKey, task: str) -> bool:
    """Return whether a task of this timer can have the name: a forged one names any task, at any length."""
    found = _NAME.fullmatch(task)
    return found is not None and found[1] == _key_digest(key)


def _name_of(timer: Timer) -> str:
    return f"{_key_digest(timer.key)}-{(timer.due_at - _EPOCH) // _MICROSECOND}-{timer.attempts}"


def _key_digest(key: TimerKey) -> str:
    return _digest(f"{key.purpose}/{key.uid}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_HASH_CHARACTERS]
