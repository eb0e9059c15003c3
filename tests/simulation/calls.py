"""What one call of a function cost."""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Invocation:
    """What one call of a function cost.

    Attributes:
        uid: Whose timer fired, for `expire`.
        reads: GETs of that object, or of what has its name now.
        others: GETs of anything else: its owner, its namespace.
        lists: LISTs begun, of the others of its group.
        quotas: LISTs begun, of the quotas of its namespace.
        deletes: DELETEs of it, whatever became of them.
        conflicts: Those that met a 409.
        absent_paths: Requests by a path that is no longer served.
        discoveries: Requests for discovery.
        outdated: Decisions to delete that did not hold until the DELETE.
    """

    function: str
    name: str = ""
    uid: str = ""
    reads: int = 0
    others: int = 0
    lists: int = 0
    quotas: int = 0
    deletes: int = 0
    conflicts: int = 0
    message: int = 0
    absent_paths: int = 0
    discoveries: int = 0
    outdated: int = 0


invocation: ContextVar[Invocation | None] = ContextVar("invocation", default=None)
