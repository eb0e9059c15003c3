"""The rights of `usage`: a test compares the component `usage-rights` with them.

`usage` marks and deletes Secrets and ConfigMaps. It lists the objects of each kind that may refer to them: all kinds of
Kubernetes itself, and the kinds of the carrier rules. Of other kinds, the component `usage-all-kinds` grants `list`.

The right to list Secrets cannot be limited to their metadata, nor to some namespaces: a pass needs all names. The
other verbs on Secrets and ConfigMaps are in a separate role, which a RoleBinding may grant in some namespaces only.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.references.carriers import Carriers
from shared.installation.rbac import Right

OBJECTS_ROLE = "ttl-after-finished-usage-objects"
"""The ClusterRole with `OBJECT_VERBS` on Secrets and ConfigMaps."""

OBJECT_VERBS = ("get", "patch", "delete")
"""The verbs on Secrets and ConfigMaps beside `list`; `get` reads what a DELETE conflicts with, and what is archived."""

BUILT_IN_GROUPS = (
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
)
"""The API groups of Kubernetes itself; a new version may have new kinds in them."""


def object_rights() -> list[dict[str, Any]]:
    """Make the RBAC rule for what is marked and deleted."""
    return [{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": [*OBJECT_VERBS]}]


def object_needs(rules: Iterable[KindRule], *, is_audit: bool) -> frozenset[Right]:
    """Return the rights on the objects that are marked and deleted.

    Args:
        rules: The rules of Secrets and ConfigMaps, or of one of them.
        is_audit: Whether unused objects are only marked.
    """
    verbs = ("patch",) if is_audit else OBJECT_VERBS
    return frozenset(Right(rule.group, rule.plural, verb) for rule in rules for verb in verbs)


def carrier_rights(carriers: Carriers) -> list[dict[str, Any]]:
    """Make the RBAC rules for what is listed.

    Args:
        carriers: The carrier rules.
    """
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for one in carriers.carriers:
        if one.refers_to_none is None and one.group not in BUILT_IN_GROUPS:
            kinds[one.group].add(one.plural)
    every = {"apiGroups": [*BUILT_IN_GROUPS], "resources": ["*"], "verbs": ["list"]}
    named = [{"apiGroups": [group], "resources": sorted(kinds[group]), "verbs": ["list"]} for group in sorted(kinds)]
    return [every, *named]
