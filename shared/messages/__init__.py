"""The CloudEvents that the functions send: the contract between the functions, and with other subscribers.

    dev.ttlafterfinished.timer.set        TimersSet       schedule, expire, enforce, archive, sweep → timers
    dev.ttlafterfinished.timer.fired      Timer           timers → the function of the attribute `purpose`
    dev.ttlafterfinished.object.deleted   ObjectDeleted   expire, enforce, sweep, usage → subscribers
    dev.ttlafterfinished.object.stopped   ObjectStopped   enforce → subscribers
    dev.ttlafterfinished.object.warned    ObjectWarned    expire → subscribers
    dev.ttlafterfinished.object.archived  ObjectArchived  archive → timers, subscribers
    dev.ttlafterfinished.archive.request  ArchiveRequest  archive, expire, sweep → the webhook of an archive
    dev.ttlafterfinished.archive.done     ArchiveDone     a foreign archiver → archive
    dev.ttlafterfinished.sweep.continue   SweepStep       sweep → sweep, until the last page of the last kind

In the event data, names are camelCase and instants are RFC 3339 in UTC. An event is only a hint: before a DELETE, the
object is read from the API server.
"""

from shared.messages.message import (
    ATTEMPTS_COUNTED_MAX,
    STEPS_MAX,
    SWEEP_COUNT_MAX,
    TIMERS_MAX,
    Message,
    Proof,
    Purpose,
    SweepStep,
    Timer,
    TimerKey,
    TimersSet,
)
from shared.messages.objects import (
    ArchiveDone,
    ArchiveRequest,
    ObjectArchived,
    ObjectDeleted,
    ObjectStopped,
    ObjectWarned,
)

__all__ = [
    "ATTEMPTS_COUNTED_MAX",
    "STEPS_MAX",
    "SWEEP_COUNT_MAX",
    "TIMERS_MAX",
    "ArchiveDone",
    "ArchiveRequest",
    "Message",
    "ObjectArchived",
    "ObjectDeleted",
    "ObjectStopped",
    "ObjectWarned",
    "Proof",
    "Purpose",
    "SweepStep",
    "Timer",
    "TimerKey",
    "TimersSet",
]
