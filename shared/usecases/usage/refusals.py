"""Skip objects if the API server refuses their PATCH: without the right, it refuses each PATCH of a tick."""

from collections import Counter
from dataclasses import dataclass, field

from shared.core.values.objects import ObjectRef
from shared.errors import ForbiddenError, TryLaterError
from shared.ports import Telemetry

PATCH_REFUSALS_MAX = 20
"""Refusals in a row after which the other objects of a kind in a namespace are skipped.

A right that is missing is certain at the first refusal. An admission webhook may refuse some objects only.
"""

_NO_RIGHT = "cannot patch resource"
"""The words of the API server if a right is missing."""


@dataclass(slots=True)
class UsageRefusals:
    """The refused PATCHes of one tick, by kind and namespace.

    Attributes:
        telemetry: Receives one problem for each kind and namespace that is skipped.
    """

    telemetry: Telemetry
    _in_a_row: Counter[tuple[str, str]] = field(default_factory=Counter)
    _skipped: set[tuple[str, str]] = field(default_factory=set)

    def check(self, ref: ObjectRef) -> None:
        """Check that a PATCH is worth sending.

        Raises:
            TryLaterError: The objects of its kind and namespace are skipped in this tick.
        """
        if (ref.kind, ref.namespace) in self._skipped:
            raise TryLaterError(f"skipped each {ref.kind} in namespace {ref.namespace}: a PATCH was refused")

    def note(self, ref: ObjectRef, error: ForbiddenError) -> None:
        """Note a refusal; see `check` for what it raises.

        Raises:
            TryLaterError: The objects of its kind and namespace are skipped already.
        """
        self.check(ref)
        key = ref.kind, ref.namespace
        self._in_a_row[key] += 1
        if _NO_RIGHT in str(error) or self._in_a_row[key] >= PATCH_REFUSALS_MAX:
            self._skipped.add(key)
            about = {"kind": ref.kind, "namespace": ref.namespace}
            self.telemetry.problem("usage skipped the other objects of a namespace", **about, error=str(error))

    def clear(self, ref: ObjectRef) -> None:
        """Note a PATCH that was accepted."""
        self._in_a_row.pop((ref.kind, ref.namespace), None)
