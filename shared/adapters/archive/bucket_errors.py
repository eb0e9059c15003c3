"""Convert errors of a bucket into the errors of `shared.errors`.

The text of an error has the request and the answer, which may hold credentials: a signed URL, an access key, the text
that was signed. Only the status, the error code and, unless the answer is about credentials, its message are used.

A bucket that does not answer, has no credentials, is busy or full is an outage of the archive. A conflict, a 408 and a
500 may be about one key.
"""

import re
from dataclasses import dataclass
from http import HTTPStatus

from obstore.exceptions import BaseError

from shared.core.archive.destination import AZ, GS, Destination
from shared.errors import ForbiddenError, PermanentError, TryLaterError, TtlError

ERROR_CHARACTERS_MAX = 16 * 1024
"""Maximum number of characters of an error that are looked at: the client puts the whole answer of a server into it."""

BUCKET_ERRORS = (BaseError, OSError, ValueError)
"""What obstore raises."""

_ANSWER = "non-2xx status code: "
_STATUS = re.compile(_ANSWER + r"(\d{3})")
_CODE = re.compile(r"<Code>([\w.-]{1,80})</Code>")
_DELETE_CODE = re.compile(r"DeleteObjects request failed for key .*\(code: ([\w.-]{1,80})\)\s*$", re.DOTALL)
_MESSAGE = re.compile(r"<Message>([^<\n\\]{1,300})")
_AT_IDENTITY = re.compile(  # a URL of a document has these words at most behind its bucket
    r"Error performing token request|://169\.254\.|://metadata\.google|://login\.|://[^/\s]+/latest/(api/token|meta-data/)"
    r"|://[^\s?]*\?\S*Action=AssumeRole"
)
_PRIVATE_CODE = re.compile(r"Access|Auth|Credential|Signature|Token")
_SETTINGS = "region, endpoint and addressing in the URL"
_CREDENTIALS = {
    GS: "GOOGLE_SERVICE_ACCOUNT_KEY or GOOGLE_APPLICATION_CREDENTIALS, or the identity of the workload",
    AZ: "AZURE_STORAGE_ACCOUNT_KEY, the other AZURE_STORAGE_ variables, or the identity of the workload",
}
_S3_CREDENTIALS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the identity of the workload"
_REFUSED_CODES = frozenset(
    {
        "AccessDenied",
        "InvalidAccessKeyId",
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
        "XAdminUserNotFound",
    }
)
_FULL_CODES = frozenset({"XMinioStorageFull", "QuotaExceeded", "StorageFull", "InsufficientCapacity"})
_BUSY_CODES = frozenset({"InternalError", "SlowDown", "ServiceUnavailable"})
_CONFLICT_CODES = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_ABSENT_CODES = frozenset({"", "NoSuchKey", "BlobNotFound", "NotFound"})
_CONNECTION = {
    "dns error": "the host name was not found",
    "ConnectionRefused": "the connection was refused",
    "InvalidCertificate": "the certificate of the server is not trusted; SSL_CERT_FILE names the trusted CAs",
    "InvalidContentType": "the server does not answer in TLS; expected http:// in endpoint",
    "kind: Timeout": "no answer in time",
    "TimedOut": "no answer in time",
}
_RETRY_SECONDS = 30.0  # until a store that was full is tried again, at the least


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a server answered; the status is 0 if none did."""

    status: int
    code: str
    message: str

    def __str__(self) -> str:
        return self.codes + (f": {self.message}" if self.message else "")

    @property
    def codes(self) -> str:
        """The status and the error code, without the message, which may name a key."""
        return " ".join(part for part in (str(self.status), self.code) if part)


def is_absent(error: Exception, action: str) -> bool:
    """Whether a 404 says that the file is absent, and not its bucket or the account."""
    return action not in {"store", "list"} and _answer(error).code in _ABSENT_CODES


def convert_bucket_error(error: Exception, what: str, destination: Destination) -> TtlError:  # noqa: C901, PLR0912 - one table
    """Return the error for a failed request.

    Args:
        error: What obstore raised.
        what: The beginning of the message: the archive, and what was tried.
        destination: The destination of the archive.
    """
    answer = _answer(error)
    credentials = _CREDENTIALS.get(destination.scheme, _S3_CREDENTIALS)
    if _AT_IDENTITY.search(_request(error)):
        said = f" (it answered {answer.status})" if answer.status else ""
        problem = f"no credentials: none are set, and the identity service gave none{said}; expected {credentials}"
        return TryLaterError(f"{what}: {problem}", outage=problem)
    if answer.code in _FULL_CODES or answer.status == HTTPStatus.INSUFFICIENT_STORAGE:
        return _outage(what, "the store is full ({}); free space or raise the quota", answer, _RETRY_SECONDS)
    if answer.code == "RequestTimeTooSkewed":
        return _outage(what, "the clocks of this machine and of the store differ ({}); set the clocks", answer)
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) or answer.code in _REFUSED_CODES:
        return ForbiddenError(
            f"{what}: the store refused ({answer}); expected credentials with the rights to put, get, list and delete "
            f"below this URL; check {credentials}"
        )
    match answer.status:
        case 0:
            return _unanswered(error, what, destination)
        case HTTPStatus.NOT_FOUND:
            return PermanentError(
                f"{what}: the bucket does not exist ({answer}); expected a bucket {destination.bucket}; make it, or "
                "correct the URL of the archive"
            )
        case HTTPStatus.CONFLICT | HTTPStatus.PRECONDITION_FAILED if answer.code in (*_CONFLICT_CODES, ""):
            return TryLaterError(f"{what}: another request for it is in progress ({answer})")
        case HTTPStatus.PRECONDITION_FAILED:  # the file was deleted between the put and the question for it
            return TryLaterError(f"{what}: it existed and was deleted a moment ago ({answer})")
        case HTTPStatus.TOO_MANY_REQUESTS:
            return _outage(what, "the store is busy ({})", answer)
        case HTTPStatus.REQUEST_TIMEOUT:
            return TryLaterError(f"{what}: the store is busy ({answer})")
        case HTTPStatus.BAD_GATEWAY | HTTPStatus.SERVICE_UNAVAILABLE | HTTPStatus.GATEWAY_TIMEOUT:
            return _outage(what, "the store answered {}", answer)
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED:
            return TryLaterError(f"{what}: the store answered {answer}")
        case _:
            return PermanentError(f"{what}: the store answered {answer}; check {_SETTINGS}")


def _unanswered(error: Exception, what: str, destination: Destination) -> TtlError:
    text, code = _text(error), _answer(error).code
    if code:  # of one file of a request that deletes several; such as InternalError, or a lock of the bucket
        kind = TryLaterError if code in _BUSY_CODES else PermanentError
        return kind(f"{what}: the store answered {code}")
    if "HTTP error" not in text and "error sending" not in text and "kind: " not in text:
        return PermanentError(f"{what}: {type(error).__name__}; check {_SETTINGS}")
    reason = next((words for sign, words in _CONNECTION.items() if sign in text), "the connection failed")
    server = destination.options.get("endpoint", f"the {destination.scheme} service")
    problem = f"no answer of {server}: {reason}"
    return TryLaterError(f"{what}: {problem}", outage=problem)


def _outage(what: str, problem: str, answer: _Answer, retry_after_seconds: float = 1.0) -> TryLaterError:
    """The error of an archive as a whole; its `outage` is without the message of the store, which may name a key."""
    return TryLaterError(
        f"{what}: {problem.format(answer)}",
        retry_after_seconds=retry_after_seconds,
        outage=problem.format(answer.codes),
    )


def _answer(error: Exception) -> _Answer:
    text = _head(error)
    status = _STATUS.search(text)
    code = _CODE.search(text) or _DELETE_CODE.search(text)
    number = int(status[1]) if status else 0
    is_private = number in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) or (code and _PRIVATE_CODE.search(code[1]))
    message = None if is_private else _MESSAGE.search(text)
    return _Answer(number, code[1] if code else "", message[1].strip() if message else "")


def _head(error: Exception) -> str:
    """The text before the debugging output, which repeats it."""
    return _text(error).partition("\n\nDebug source")[0]


def _request(error: Exception) -> str:
    """The text before the answer, which a server writes: the URL of the request, and why it failed."""
    return _head(error).partition(_ANSWER)[0]


def _text(error: Exception) -> str:
    return str(error)[:ERROR_CHARACTERS_MAX]
