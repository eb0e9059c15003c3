"""The first names that an open breaker keeps, for the person who decides whether to release it."""

from datetime import datetime

from shared.safeguards.state_schema import BREAKER, KEPT, Data, compact, parse_kept

KEPT_NAMES_MAX = 20
"""Names in the shared state, of all processes: at most about 8 kB."""


class KeptNames:
    """The first names that the open breaker keeps; see `shared.safeguards.shared_part.SharedPart`."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}
        self._new: dict[str, None] = {}

    def add(self, name: str) -> None:
        """Note the name of an object that was kept; only the first names are stored."""
        if name not in self._known and len(self._known) + len(self._new) < KEPT_NAMES_MAX:
            self._new[name] = None

    @property
    def has_unwritten(self) -> bool:
        """See `SharedPart`."""
        return bool(self._new)

    def merge(self, data: Data, now: datetime) -> Data:  # noqa: ARG002 - of the protocol
        """See `SharedPart`; while the breaker is closed, no name is written."""
        if BREAKER not in data:
            return data
        names = dict.fromkeys((*parse_kept(data), *self._new))
        return {**data, KEPT: compact(list(names)[:KEPT_NAMES_MAX])}

    def learn(self, data: Data, now: datetime, *, is_written: bool) -> None:  # noqa: ARG002 - as above
        """See `SharedPart`."""
        if is_written or BREAKER not in data:
            self._new.clear()
        self._known = dict.fromkeys(parse_kept(data)) if BREAKER in data else {}
