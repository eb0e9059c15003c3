"""The reasons in log lines, metrics and Kubernetes Events beside `Reason`, each with its meaning."""

from enum import StrEnum


class Verdict(StrEnum):
    """What was done about an object; with the Reason it makes one log line and one metric."""

    DELETED = "deleted"
    """The API server accepted the DELETE."""
    WOULD_DELETE = "would-delete"
    """The object is due, and the process is a dry run."""
    ALREADY_GONE = "already-gone"
    """The object does not exist, or another client deleted it first."""
    STOPPED = "stopped"
    """The API server accepted the patch that stops the object at its active deadline."""
    WOULD_STOP = "would-stop"
    """The active deadline of the object is over, and the process is a dry run."""
    TIMER_SET = "timer-set"
    """The object has a timer."""
    ARCHIVED = "archived"
    """The archive of the object has acknowledged it."""
    ALREADY_ARCHIVED = "already-archived"
    """The archive of the object had acknowledged this version of it before."""
    WOULD_ARCHIVE = "would-archive"
    """The object has to be archived, and the process is a dry run."""
    WARNED = "warned"
    """The event `object.warned` about the object is sent: it is deleted soon."""
    MARKED = "marked"
    """The object is marked as unused."""
    UNMARKED = "unmarked"
    """The mark of the object is removed, and so is the announcement of its deletion."""
    RECORDED = "recorded"
    """The record of use is written: a pass has seen the Secret or ConfigMap used, for the first time."""
    ANNOUNCED = "announced"
    """The deletion of the unused object is announced."""
    KEPT = "kept"
    """The object is kept."""
    FAILED = "failed"
    """The API server refused for good. The reason is the name of the error class."""


class HandlingReason(StrEnum):
    """Why a function keeps an object or sets a timer, if neither `Reason` nor a safeguard says why.

    The text of each member is its meaning, and what an operator can do: docs/reference/reasons.md is made from it.
    """

    KIND_NOT_ENABLED = "kind-not-enabled"
    """The kind is not in `TTL_KINDS`, or it has no kind rule.

    Add the kind to `TTL_KINDS`.
    """
    NAMESPACE_NOT_ENABLED = "namespace-not-enabled"
    """The process is limited to another namespace.

    Run it without `--namespace`, or start another process for this namespace.
    """
    KIND_NOT_SERVED = "kind-not-served"
    """The API server does not serve the kind.

    If you removed its CRD by mistake, install the CRD again.
    """
    TRY_LATER = "try-later"
    """The API server is busy or cannot be reached, or the object changed in each attempt. A timer is set for a retry.

    Nothing. If it lasts, `kubectl ttl doctor` checks the connection; the log line names the error.
    """
    ARCHIVED_OFTEN = "archived-often"
    """A client has written the object since a version of it was sent to its archive. After a pause, the version that is
    present then is archived. Until then the object is not deleted. The pause is 2 seconds after the first version, and
    twice as long after each further one. It is at least as long as the time from the finish to the version before it,
    and at most 10 minutes.

    Nothing, if it ends within an hour. Else find the client that keeps writing the object, and have it stop:
    `kubectl get KIND NAME -o yaml --show-managed-fields` has each client, and the time of its last change.
    """
    JITTER = "jitter"
    """A sweep found the object overdue, and the policy rule has a `jitter`. The object is deleted within that time.

    Nothing.
    """
    LEFT_TO_SWEEP = "left-to-sweep"
    """The object is due later than two sweep intervals, or 10 minutes, from now. A later sweep sets its timer.

    Nothing.
    """
    LEFT_TO_TICK = "left-to-tick"
    """The unused object is due, and the time of the tick is over, for example because of the budget. The next tick
    deletes it.

    Wait, or raise `budget` in the policy.
    """


class EventReason(StrEnum):
    """The reasons of the Kubernetes Events that this project writes; docs/reference/events.md is made from them.

    The text of each member is what the Event is about, and what it means.
    """

    EXPIRED = "Expired"
    """The object, or its Namespace for a sum.

    The object was deleted because its TTL was over, or because of a limit of the policy. The message has the finish
    time, the due time, the source of the TTL and the hash of the policy. An Event of the journal.
    """
    ARCHIVED = "Archived"
    """The object, or its Namespace for a sum.

    An archive acknowledged the object. The message names the archive and the place. An Event of the journal.
    """
    INVALID_TTL = "InvalidTtl"
    """The object.

    A TTL annotation or the TTL field of the kind has a malformed value. The object is kept. An Event of the journal.
    """
    INVALID_POLICY = "InvalidPolicy"
    """The object, or its Namespace.

    A policy rule cannot be evaluated for the object, or an annotation of the Namespace has a malformed value. The
    object, or everything in the Namespace, is kept. An Event of the journal.
    """
    NOT_ARCHIVED = "NotArchived"
    """The object.

    The object is due, and is kept until its archive has acknowledged exactly this version of it. The message names the
    archive, and the problem if reading the archive fails. Without a problem, the Event is Normal: `archive` has yet to
    store the object. If an archive refuses the object for good, the message is its answer, and the action is `Refuse`.
    An Event of the journal.
    """
    ARCHIVED_OFTEN = "ArchivedOften"
    """The object.

    A client keeps writing the object after its finish: 8 or more versions of it were sent to its archive, and another
    one waits. After a pause of 10 minutes at the most, the version that is present then is archived. Until then the
    object is not deleted. To find the client, see the reason `archived-often`. An Event of the journal.
    """
    INVALID_ARCHIVE = "InvalidArchive"
    """The object, or its Namespace.

    The annotation about the archive has a malformed value, or names no archive of the policy. The object, or everything
    in the Namespace, is kept. An Event of the journal.
    """
    OVERRIDDEN_TTL = "OverriddenTtl"
    """The object.

    The controller of the kind acts on the kind's own TTL field, and deletes the object before its TTL is over. An Event
    of the journal.
    """
    SERVER_CLOCK_AHEAD = "ServerClockAhead"
    """The object.

    The API server's clock is more than 60 s ahead of this process. The object is kept until it is due by both clocks.
    An Event of the journal.
    """
    DELETION_REFUSED = "DeletionRefused"
    """The object.

    The API server refused to read or delete the object for good, for example with a 403. The message is its answer. An
    Event of the journal.
    """
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """The object.

    The object ran for longer than its active deadline, and was stopped or deleted. The message names the source of the
    deadline. An Event of the journal.
    """
    INVALID_DEADLINE = "InvalidDeadline"
    """The object.

    An annotation about the active deadline has a malformed value. The object is not stopped. An Event of the journal.
    """
    CANNOT_STOP = "CannotStop"
    """The object.

    The object's own annotation sets an active deadline, and its kind has no way to stop an object. The message gives
    the reason. An Event of the journal.
    """
    STOP_UNDONE = "StopUndone"
    """The object.

    The object was stopped at its active deadline and runs again. It is not stopped again. An Event of the journal.
    """
    STOP_REFUSED = "StopRefused"
    """The object.

    The API server refused to read or stop the object for good, or did not store the stop. The message is its answer.
    An Event of the journal.
    """
    UNUSED = "Unused"
    """The Secret or ConfigMap.

    Nothing refers to the object, and its deletion is announced. The message names the policy rule and the time. An
    Event of the journal.
    """
    UNUSED_DELETED = "UnusedDeleted"
    """The Secret or ConfigMap.

    The object was deleted because nothing referred to it. The message names the policy rule. An Event of the journal.
    """
    RECREATE_LOOP = "RecreateLoop"
    """The object.

    A controller recreated the object after each deletion. The message names the controller, and the end of the pause.
    An Event of the journal.
    """
    BREAKER_OPEN = "BreakerOpen"
    """The installation.

    The breaker tripped: nothing is deleted until a person runs `kubectl ttl release --breaker`.
    """
    BREAKER_RELEASED = "BreakerReleased"
    """The installation.

    A person released the breaker: due objects are deleted again.
    """
    STOPPED = "Stopped"
    """The installation.

    A person stopped all deletions with `kubectl ttl stop`. The message contains the reason.
    """
    STARTED = "Started"
    """The installation.

    A person started the deletions again with `kubectl ttl start`.
    """
    SWEPT = "Swept"
    """The installation.

    A sweep of all kinds listed the last page of the last kind.
    """
    SWEPT_IN_PART = "SweptInPart"
    """The installation.

    A sweep of all kinds ended, and the API server did not let it list the kinds in the message.
    """
    DEAD_LETTER = "DeadLetter"
    """The installation.

    A function did not accept an event, and the Broker sent it to the dead letter sink. The message is the answer.
    """
