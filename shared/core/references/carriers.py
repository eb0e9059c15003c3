"""Find the carrier rules of a process by apiVersion and kind."""

from shared.core.references.carrier import Carrier


class Carriers:
    """The carrier rules of all known kinds."""

    def __init__(self, carriers: tuple[Carrier, ...]) -> None:
        self.carriers = carriers
        self._by_kind = {(version, one.kind): one for one in carriers for version in one.api_versions}

    def get(self, api_version: str, kind: str) -> Carrier | None:
        """The carrier rule of a kind; None for an unknown kind, whose objects are searched as a whole."""
        return self._by_kind.get((api_version, kind))

    def is_searched(self, api_version: str, kind: str) -> bool:
        """Return whether the objects of a served kind have to be listed: all but those known to refer to none."""
        carrier = self.get(api_version, kind)
        return carrier is None or carrier.refers_to_none is None
