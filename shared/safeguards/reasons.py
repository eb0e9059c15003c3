"""The reasons for which a safeguard denies or delays a deletion; docs/reference/reasons.md is made from them."""

from enum import StrEnum


class Safeguard(StrEnum):
    """Why a safeguard does not let a due object be deleted now; used beside `Reason`, in the same places."""

    STOPPED = "stopped"
    """A person stopped all deletions with `kubectl ttl stop`.

    To start them again, run `kubectl ttl start`.
    """
    STOP_UNREAD = "stop-unread"
    """The process cannot read ConfigMap `ttl-after-finished-state`, so it is unknown whether deletions are stopped.

    Allow `get` on this ConfigMap to the process. The log line names the error of the API server.
    """
    BUDGET = "budget"
    """The budget is exhausted. The object gets a slot and a timer. If the deletion backlog exceeds two sweep intervals,
    the object is left to a later sweep.

    Wait, or raise `budget` in the policy.
    """
    BREAKER_OPEN = "breaker-open"
    """The breaker is open, because too many deletions, or too large a share of one kind, were due within its window.

    See what is due with `kubectl ttl plan`, then run `kubectl ttl release --breaker`.
    """
    BREAKER_UNREAD = "breaker-unread"
    """The objects of the kind cannot be counted, so the breaker cannot check its limit by share.

    Allow `list` on the kind. The log line names the error of the API server.
    """
    RECREATE_LOOP = "recreate-loop"
    """A controller recreates the object under the same name after each deletion. It is kept until the window ends.

    Correct the controller that the Event `RecreateLoop` names, or set `recreation` in the policy.
    """
