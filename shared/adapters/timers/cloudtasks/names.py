"""The names of tasks.

    KEY-SECOND-NOW[-RANDOM]

KEY is a hash of the purpose and the uid. It comes first, because sequential prefixes make all calls slower (reference
of CreateTask). SECOND is when the task is to be sent, in microseconds, rounded up by `sent_at`. NOW is 1 if it is sent
at once, and 0 if it is sent at SECOND.

So all timers of one uid and purpose that are to be sent in the same second are one task, also by several processes, and
also if their due times differ. Its request is that of the first timer. This is harmless: the first timer is due by
then, and so are the others. Its function reads the object and decides; a stale proof is refused, and then the object is
read. Its attempts set the next back-off. They may be more than those of the other timers: then a limit of attempts,
such as `CHILD_ATTEMPTS_MAX`, is reached earlier, and the next sweep goes on. If this process's clock is behind, the
first timer may be due by it and another one not yet: the function sets that one again.

Cloud Tasks blocks a name for one hour to 24 hours after its task was executed or deleted. If a name is taken by such a
task, or by one that is being executed, the timer gets a RANDOM part: see `CloudTasksTimers`.

Older versions have the due time in place of SECOND, the number of attempts in place of NOW, and may have put up to 16
hexadecimal digits in place of RANDOM. They accept the names of this version.
"""

import re
import secrets
from datetime import UTC, datetime

from shared.adapters.timers.times import instant_of, key_of, microseconds, sent_at
from shared.messages import Timer


def name_of(timer: Timer, at: datetime, *, is_now: bool = False) -> str:
    """Return the name of the task that sends a timer at `sent_at` of an instant, or now, which is that instant."""
    return f"{key_of(timer)}-{microseconds(sent_at(timer, at))}-{int(is_now)}"


def free_name_of(name: str) -> str:
    """Return a name that no other task has."""
    return f"{name}-{secrets.token_hex(8)}"


def is_name_of(timer: Timer, task: str) -> bool:
    """Return whether a task may send this timer by its name: a forged one names any task, at any length."""
    found = re.fullmatch(rf"{key_of(timer)}-(-?[0-9]{{1,20}})-[0-9]{{1,9}}(-[0-9a-f]{{1,16}})?", task)
    return found is not None and microseconds(timer.due_at) <= int(found[1])


def second_in(task: str) -> datetime:
    """Return SECOND of a name that `is_name_of` accepted: no task is scheduled for later."""
    found = re.match(r"[0-9a-f]+-(-?[0-9]{1,20})-", task)
    try:
        return instant_of(int(found[1]) if found else 0)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)


def key_in(path: str) -> str:
    """Return KEY of the full name of a task: all tasks of one timer have the same one."""
    return path.rpartition("/")[2].partition("-")[0]
