"""What users intend for each object: the reference that the system is compared with.

Nothing here reads an object's JSON, and nothing is shared with `decide`. Each user who creates, finishes, holds or
annotates an object records the meaning here, so an error of the system in reading the JSON shows as a difference.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

NEVER = "never"
MALFORMED = "malformed"

_LONG_AGO = datetime.min.replace(tzinfo=UTC)

REPLICA_SET = "replica-set"
"""The owner that replaces finished Pods, and has no other kind of dependents."""

UNKNOWN_OWNER = "unknown"
"""The owner of an unknown kind."""

Ttl = timedelta | datetime | str
Key = tuple[str, str, str]  # kind, namespace, name


@dataclass
class SimObject:
    """One object, and what its users intend for it.

    Attributes:
        created_at: By the API server's clock, in whole seconds.
        moves: Its only finish time is its newest status write.
        ttls: By annotation (`ttl`, `ttl-failed`, `expire-at`) or `native`.
        owner: Uid of its controller, `REPLICA_SET` or `UNKNOWN_OWNER`.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    created_at: datetime = _LONG_AGO
    finished_at: datetime | None = None
    failed: bool = False
    moves: bool = False
    ttls: dict[str, Ttl] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    held: bool = False
    owner: str = ""
    owner_ignored: bool = False
    finalizers: bool = False
    dying: bool = False
    gone: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name} {self.uid}"

    @property
    def key(self) -> Key:
        return self.kind, self.namespace, self.name

    def own_ttl(self) -> Ttl | None:
        """The TTL or the instant that the object itself sets; None if it sets none."""
        said = {place: ttl for place, ttl in self.ttls.items() if place != "native"}
        if MALFORMED in said.values():
            return MALFORMED
        by_outcome = "ttl-failed" if self.failed else "ttl-succeeded"
        ttls = (self.ttls.get(place) for place in ("expire-at", by_outcome, "ttl", "native"))
        return next((ttl for ttl in ttls if ttl is not None), None)
