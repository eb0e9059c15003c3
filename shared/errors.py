"""The errors of this project; each class says what the sender of the event should do next.

The HTTP status of a function's answer follows from the class: a 4xx for EventError, 422 for PermanentError, and 503
with Retry-After for TryLaterError.
"""

from typing import Any


class TtlError(Exception):
    """The base of all errors that this project raises on purpose; the message is one sentence for people."""


class EventError(TtlError):
    """The event is malformed: do not send it again.

    Attributes:
        status: The HTTP status of the answer: 400, 401, 403, 405, 413, 415 or 422; Knative retries none of them.
    """

    def __init__(self, message: str, *, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


class PermanentError(TtlError):
    """The API server refuses for good: do not send the event again; the error is reported."""


class ForbiddenError(PermanentError):
    """The API server answered 403: a right is missing."""


class GuardError(PermanentError):
    """An admission policy of ours refuses a DELETE or a stop: no right is missing."""


class AbsentKindError(PermanentError):
    """The API server does not serve the kind."""


class MissingLogError(PermanentError):
    """There is no log: the Pod is gone, or the container has not started."""


class AbsentDocumentError(PermanentError):
    """The archive has no document under a key."""


class DamagedDocumentError(PermanentError):
    """A stored document is not what was archived: its digest or its form is wrong."""


class UnsignedDocumentError(DamagedDocumentError):
    """A stored document has no valid signature, and nothing else is wrong with it.

    Attributes:
        record: Its `Record`. A client that may write to the store may have written it, so nothing in it is a proof.
    """

    def __init__(self, problem: str, record: Any = None) -> None:
        super().__init__(problem)
        self.record = record


class TryLaterError(TtlError):
    """The API server, the Broker or the timer engine is busy or away: send the event again after a while.

    Attributes:
        retry_after_seconds: How long to wait at the least.
        outage: What is wrong with an archive as a whole: without its name, and without the key of any object. Empty if
            the error is about one key or one request.
        is_overload: Whether the API server refused the request because it has too many of them.
    """

    def __init__(
        self, message: str, *, retry_after_seconds: float = 1.0, outage: str = "", is_overload: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.outage = outage
        self.is_overload = is_overload


class OtherArchiveError(TryLaterError):
    """The destination of an archive is another archive, or which one it is is unknown: nothing is stored there."""


class UnreachableLogError(TryLaterError):
    """The node of a Pod does not answer, or the log broke off: it may be read later, while the Pod exists."""


class OutdatedError(TryLaterError):
    """The decision to delete does not hold any more, or its facts are too old: read the object and decide again."""


class ConflictError(TtlError):
    """The uid or the resourceVersion in the preconditions has changed (409): read the object again."""
