"""Pass objects over whose PATCH the API server refuses: without the right, each PATCH of a tick would be in vain."""

from collections import Counter
from dataclasses import dataclass, field

from shared.core.objects import ObjectRef
from shared.errors import ForbiddenError, TryLaterError
from shared.ports import Telemetry

PATCH_REFUSALS_MAX = 20
"""Refusals in a row after which the other objects of a kind in a namespace are passed over.

A right that is missing is certain at the first refusal. An admission webhook may refuse some objects only.
"""

_NO_RIGHT = "cannot patch resource"
"""The words of the API server if a right is missing."""


@dataclass(slots=True)
class UsageRefusals:
    """The refused PATCHes of one tick, by kind and namespace.

    Attributes:
        telemetry: Receives one problem for each kind and namespace that is passed over.
    """

    telemetry: Telemetry
    _in_a_row: Counter[tuple[str, str]] = field(default_factory=Counter)
    _passed_over: set[tuple[str, str]] = field(default_factory=set)

    def check(self, ref: ObjectRef) -> None:
        """Check that a PATCH is worth sending.

        Raises:
            TryLaterError: The objects of its kind and namespace are passed over in this tick.
        """
        if (ref.kind, ref.namespace) in self._passed_over:
            raise TryLaterError(f"each {ref.kind} in namespace {ref.namespace} is passed over: a PATCH was refused")

    def note(self, ref: ObjectRef, error: ForbiddenError) -> None:
        """Note a refusal; see `check` for what it raises.

        Raises:
            TryLaterError: The objects of its kind and namespace are passed over already.
        """
        self.check(ref)
        key = ref.kind, ref.namespace
        self._in_a_row[key] += 1
        if _NO_RIGHT in str(error) or self._in_a_row[key] >= PATCH_REFUSALS_MAX:
            self._passed_over.add(key)
            about = {"kind": ref.kind, "namespace": ref.namespace}
            self.telemetry.problem("usage passed the rest of a namespace over", **about, error=str(error))

    def clear(self, ref: ObjectRef) -> None:
        """Note a PATCH that was accepted."""
        self._in_a_row.pop((ref.kind, ref.namespace), None)
