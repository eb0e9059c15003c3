"""Write and read what a leader handles, as annotations on its Lease: other processes cannot see its options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.core.values.objects import ANNOTATION_DOMAIN, get_in, get_text, printable

_LEADER = f"{ANNOTATION_DOMAIN}/leader"
"""The annotation with the identity of the holder that wrote the annotations; the others have this name plus `-PART`."""

LEASE_KINDS_MAX = 500
"""The most kinds that are read from a Lease; further kinds are ignored."""

TEXT_CHARACTERS_MAX = 253
"""The most characters of each value that is read from a Lease, as of a Kubernetes name; longer values are cut."""

_KINDS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Scope:
    """What a leader handles.

    Attributes:
        namespace: The namespace that it handles; empty for all.
        kinds: The kinds that it handles, in full (`jobs.batch`), as in TTL_KINDS; empty for all known kinds.
        policy: The first 12 digits of the SHA-256 of its policy; empty without a policy.
        dry_run: Whether it is a dry run.
        version: The version of the program; empty if it cannot be read.
        state: The namespace of its brake and shared state; empty if it cannot be read.
    """

    namespace: str
    kinds: tuple[str, ...]
    policy: str
    dry_run: bool
    version: str
    state: str = ""

    def as_annotations(self, holder: str) -> dict[str, str]:
        """The annotations for the Lease, by full name."""
        return {
            _LEADER: holder,
            f"{_LEADER}-namespace": self.namespace,
            f"{_LEADER}-kinds": ",".join(self.kinds),
            f"{_LEADER}-policy": self.policy,
            f"{_LEADER}-dry-run": "true" if self.dry_run else "false",
            f"{_LEADER}-version": self.version,
            f"{_LEADER}-state": self.state,
        }

    def handles_kind(self, name: str) -> bool:
        """Return whether the leader handles a kind, given by the name of its rule."""
        return not self.kinds or name in self.kinds

    def handles_namespace(self, namespace: str) -> bool:
        """Return whether the leader handles an object's namespace, which is empty for a cluster-scoped object."""
        return self.namespace in ("", namespace)

    @property
    def named_kinds(self) -> str:
        """`all kinds`, `jobs.batch and pods`, or how many there are."""
        if not self.kinds:
            return "all kinds"
        if len(self.kinds) > _KINDS_SHOWN:
            return f"{len(self.kinds)} kinds"
        return " and ".join(self.kinds)

    @property
    def named_policy(self) -> str:
        """`policy sha256:1a2b3c4d5e6f`, or `no policy`."""
        return f"policy sha256:{self.policy}" if self.policy else "no policy"

    def __str__(self) -> str:
        """`namespace prod, jobs.batch and pods, no policy, version 1.2.3`."""
        namespaces = f"namespace {self.namespace}" if self.namespace else "all namespaces"
        parts = [namespaces, self.named_kinds, self.named_policy, "dry run" if self.dry_run else ""]
        return ", ".join(part for part in (*parts, f"version {self.version}" if self.version else "") if part)


def parse_scope(lease: Any) -> Scope | None:
    """Read the scope from the annotations of a Lease. It never raises, because people may have edited them.

    Args:
        lease: The Lease as the API server sent it; None if there is none.

    Returns:
        None if the holder of the Lease did not write the annotations.
    """
    annotations = get_in(lease, "metadata.annotations")
    holder = get_text(lease, "spec.holderIdentity")
    if not isinstance(annotations, dict) or not holder or annotations.get(_LEADER) != holder:
        return None
    kinds = _text(annotations, "kinds", characters_max=LEASE_KINDS_MAX * TEXT_CHARACTERS_MAX).split(",")
    return Scope(
        namespace=_text(annotations, "namespace"),
        kinds=tuple(kind[:TEXT_CHARACTERS_MAX] for kind in kinds if kind)[:LEASE_KINDS_MAX],
        policy=_text(annotations, "policy"),
        dry_run=_text(annotations, "dry-run") == "true",
        version=_text(annotations, "version"),
        state=_text(annotations, "state"),
    )


def _text(annotations: Mapping[str, Any], part: str, *, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    value = annotations.get(f"{_LEADER}-{part}")
    return printable(value[:characters_max]) if isinstance(value, str) else ""
