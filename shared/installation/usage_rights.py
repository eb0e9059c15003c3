"""The rights of `usage`; the component `usage-rights` grants them.

`usage` marks and deletes Secrets and ConfigMaps. It lists the objects of each kind that may refer to them: all kinds of
Kubernetes itself, and the kinds of the carrier rules. Of other kinds, the component `usage-all-kinds` grants `list`.

The right to list Secrets cannot be limited to their metadata, nor to some namespaces: a pass needs all names. The
other verbs on Secrets and ConfigMaps are in a separate role, which a RoleBinding may grant in some namespaces only.
"""

from collections.abc import Iterable

from shared.core.kinds.rule import KindRule
from shared.installation.rbac import Right

OBJECTS_ROLE = "ttl-after-finished-usage-objects"
"""The ClusterRole with `OBJECT_VERBS` on Secrets and ConfigMaps."""

OBJECT_VERBS = ("get", "patch", "delete")
"""The verbs on Secrets and ConfigMaps beside `list`; `get` reads what a DELETE conflicts with, and what is archived."""


def object_needs(rules: Iterable[KindRule], *, is_audit: bool) -> frozenset[Right]:
    """Return the rights on the objects that are marked and deleted.

    Args:
        rules: The rules of Secrets and ConfigMaps, or of one of them.
        is_audit: Whether unused objects are only marked.
    """
    verbs = ("patch",) if is_audit else OBJECT_VERBS
    return frozenset(Right(rule.group, rule.plural, verb) for rule in rules for verb in verbs)
