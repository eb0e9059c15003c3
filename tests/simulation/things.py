"""What users want of each object, written down as they say it: the oracle that judges the system.

Nothing here reads an object's JSON and nothing is shared with `decide`: each user who creates, finishes, holds or
annotates an object in the simulation records here what that means. So a misreading of the JSON by the system shows as
a difference.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

NEVER = "never"
MALFORMED = "malformed"

_LONG_AGO = datetime.min.replace(tzinfo=UTC)

Wish = timedelta | datetime | str
Key = tuple[str, str, str]  # kind, namespace, name


@dataclass
class Thing:
    """One object, and what its users said of it.

    Attributes:
        created_at: By the API server's clock, in whole seconds.
        moves: Its only finish time is its newest status write.
        wishes: By annotation (`ttl`, `ttl-failed`, `expire-at`) or `native`.
        owner: Uid of its controller; `unknown` for one of an unknown kind.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    created_at: datetime = _LONG_AGO
    finished_at: datetime | None = None
    failed: bool = False
    moves: bool = False
    wishes: dict[str, Wish] = field(default_factory=dict)
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

    def own_wish(self) -> Wish | None:
        """What it says itself of when it should go; None where it says nothing."""
        said = {place: wish for place, wish in self.wishes.items() if place != "native"}
        if MALFORMED in said.values():
            return MALFORMED
        by_outcome = "ttl-failed" if self.failed else "ttl-succeeded"
        wishes = (self.wishes.get(place) for place in ("expire-at", by_outcome, "ttl", "native"))
        return next((wish for wish in wishes if wish is not None), None)
