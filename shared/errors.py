"""The error tree. Each error says what whoever sent the event should do next.

TtlError
├── EventError            the event is malformed: never again, to the dead letter (4xx)
├── PermanentError        the world refuses for good (403, an invalid request): never again, reported (422)
│   ├── ForbiddenError    the API server's 403: a right is missing
│   └── GuardError         the delete guard refuses a DELETE: no right is missing
├── TryLaterError         the world is busy or away: again, after a while (503 + Retry-After)
│   └── OutdatedError    the facts of a decision changed, or aged, before the DELETE: decide again
└── ContinueExpiredError  a page of a LIST is gone (410): start the LIST anew
"""


class TtlError(Exception):
    """Everything that this project raises on purpose; the message is one sentence for people."""


class EventError(TtlError):
    """An event that cannot be understood, however often it comes.

    Attributes:
        status: The HTTP status to answer: 400, 401, 403, 405, 413, 415 or 422; Knative retries none of them.
    """

    def __init__(self, message: str, *, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


class PermanentError(TtlError):
    """The API server refuses for good."""


class ForbiddenError(PermanentError):
    """A right is missing."""


class GuardError(PermanentError):
    """An admission policy of the delete guard refuses a DELETE."""


class AbsentKindError(PermanentError):
    """The API server does not serve the kind."""


class TryLaterError(TtlError):
    """It did not work now and may work later.

    Attributes:
        retry_after_seconds: How long to wait at the least.
    """

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class OutdatedError(TryLaterError):
    """The decision to delete does not hold any more, or its facts are too old: read and decide again."""


class ConflictError(TtlError):
    """A precondition did not hold: another uid, or another resourceVersion. Only a new read can tell which."""
