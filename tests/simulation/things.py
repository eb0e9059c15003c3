"""What users want of each object, written down as they say it: the oracle that judges the system.

Nothing here reads an object's JSON and nothing is shared with `decide`: whoever creates, finishes, holds or annotates
an object in the simulation says here what that means. So a misreading of the JSON by the system shows as a difference.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

NEVER = "never"
MALFORMED = "malformed"

Wish = timedelta | datetime | str
Key = tuple[str, str, str]  # kind, namespace, name


@dataclass
class Thing:
    """One object, and what its users said of it.

    Attributes:
        moves: Its only finish time is its newest status write.
        wishes: By annotation (`ttl`, `ttl-failed`, `expire-at`) or `native`.
        owner: Uid of its controller; `nobody` for one of a kind that nobody knows.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    finished_at: datetime | None = None
    failed: bool = False
    moves: bool = False
    wishes: dict[str, Wish] = field(default_factory=dict)
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


class Things:
    """All objects that ever were."""

    def __init__(self) -> None:
        self.all: dict[str, Thing] = {}

    def alive(self) -> list[Thing]:
        return [thing for thing in self.all.values() if not thing.gone]

    def find(self, kind: str, namespace: str, name: str) -> Thing | None:
        return next((thing for thing in self.alive() if thing.key == (kind, namespace, name)), None)

    def due_at(self, thing: Thing) -> datetime | None:
        """When users want it gone; None while they do not."""
        return None if self.why_kept(thing) else self._by_wish(thing)

    def why_kept(self, thing: Thing) -> str:
        """Why it must stay for now, whatever the time; empty where only time decides."""
        if thing.gone or thing.dying:
            return "it is going already"
        if thing.held:
            return "somebody holds it"
        if thing.finished_at is None:
            return "it has not finished"
        if MALFORMED in [wish for place, wish in thing.wishes.items() if place != "native"]:
            return "an annotation cannot be read"
        if self._by_wish(thing) is None:
            return "nobody asked for it"
        if thing.kind == "Pod" and thing.owner and not thing.owner_ignored and self._works(thing.owner):
            return "its owner has not finished"
        return ""

    def _works(self, uid: str) -> bool:
        owner = self.all.get(uid)
        return owner is None or (not owner.gone and owner.finished_at is None)

    def _by_wish(self, thing: Thing) -> datetime | None:
        by_outcome = "ttl-failed" if thing.failed else "ttl-succeeded"
        for place in ("expire-at", by_outcome, "ttl", "native"):
            wish = thing.wishes.get(place)
            if wish is None:
                continue
            if isinstance(wish, datetime):
                return max(wish, thing.finished_at)
            return thing.finished_at + wish if isinstance(wish, timedelta) else None
        return None
