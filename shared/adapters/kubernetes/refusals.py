"""Convert refusals of the API server into the errors of `shared.errors`."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import aiohttp

from shared.core.values.objects import GUARD_PREFIX, STOP_GUARD_PREFIX, get_text
from shared.errors import ConflictError, ForbiddenError, GuardError, PermanentError, TryLaterError

_NAME = f"(?:{GUARD_PREFIX}|{STOP_GUARD_PREFIX})[^']*"
_BY_GUARD = re.compile(
    rf"ValidatingAdmissionPolicy '({_NAME})' with binding '[^']*'(?: denied request)?: (.*)", re.DOTALL
)
_BY_WEBHOOK = "admission webhook "
_BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT)


class UnreadableError(PermanentError):
    """An object is nested too deeply, or has too many values, to be parsed."""


class TooLargeError(PermanentError):
    """An answer is larger than this process accepts: request fewer objects at once."""


class GoneError(PermanentError):
    """410: a continue token, or the resourceVersion of a watch, is older than the API server's history.

    Attributes:
        continue_token: Continues the LIST in the present state; empty if the server offers none.
    """

    def __init__(self, message: str, continue_token: str = "") -> None:
        super().__init__(message)
        self.continue_token = continue_token


def raise_for(status: int, payload: Any, *, headers: Mapping[str, str], path: str) -> None:
    """Raise the error for a refusal; its text includes the API server's own message."""
    message = payload if isinstance(payload, str) else get_text(payload, "message")
    message = message or f"HTTP {status}"
    match status:
        case HTTPStatus.UNAUTHORIZED:
            raise PermanentError(f"the API server rejected the credentials (401): {message}")
        case HTTPStatus.FORBIDDEN | HTTPStatus.UNPROCESSABLE_ENTITY if denial := _BY_GUARD.search(message):
            policy, reason = denial[1], denial[2]
            guard = "stop guard" if policy.startswith(STOP_GUARD_PREFIX) else "delete guard"
            raise GuardError(f"the {guard} refuses, by ValidatingAdmissionPolicy {policy}: {reason}")
        case HTTPStatus.FORBIDDEN:
            raise ForbiddenError(message)
        case HTTPStatus.CONFLICT:
            raise ConflictError(message)
        case HTTPStatus.GONE:
            raise GoneError(message, get_text(payload, "metadata.continue"))
        case _ if status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise TryLaterError(
                f"the API server answered {status}: {message}",
                retry_after_seconds=_seconds(headers),
                is_overload=_is_overload(status, headers, message),
            )
        case _:
            raise PermanentError(f"the API server answered {status} for {path.partition('?')[0]}: {message}")


def untrusted(server: str, error: aiohttp.ClientConnectorCertificateError) -> PermanentError:
    """Return the error for a server certificate that is not trusted; a retry cannot succeed."""
    reason = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
    return PermanentError(
        f"the certificate of the API server at {server} is not trusted: {reason}; expected a certificate signed by "
        "the CA of TTL_API_CA, of the kubeconfig, or of the cluster"
    )


def _is_overload(status: int, headers: Mapping[str, str], message: str) -> bool:
    """Return whether the API server itself has too many requests; an admission webhook of one kind may answer 429 too.

    Source: `tooManyRequests` in k8s.io/apiserver, pkg/server/filters/maxinflight.go.
    """
    return status == HTTPStatus.TOO_MANY_REQUESTS and "retry-after" in headers and not message.startswith(_BY_WEBHOOK)


def _seconds(headers: Mapping[str, str]) -> float:
    """Return the Retry-After header in seconds; 1 if it is absent or invalid."""
    try:
        return min(max(0.0, float(headers.get("retry-after", "1"))), 3_600.0)
    except ValueError:
        return 1.0
