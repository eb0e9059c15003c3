"""Build the edit by which `hold` keeps a Secret or a ConfigMap; `release` uses that of any kind."""

from dataclasses import replace
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.ttl.edits import Edit, hold
from shared.core.unused.field_writes import UNUSED_HASH, UNUSED_SINCE
from shared.core.unused.unused_mark import is_marked


def hold_unused(obj: Any, rule: KindRule, reason: str) -> Edit:
    """Keep a Secret or a ConfigMap even if nothing refers to it, and remove its mark.

    Without the mark, its TTL starts again after the release, even if the release comes before the next pass.

    Args:
        obj: Its metadata.
        rule: `SECRETS` or `CONFIG_MAPS` of `shared.core.policy.unused`.
        reason: Why the object is kept, for people.

    Raises:
        ValueError: The reason is empty, or the object is being deleted.
    """
    # A hold of a kind that never finishes is rejected, because such objects are not deleted. These are, if unused.
    edit = hold(obj, rule.model_copy(update={"never_finishes": None}), reason)
    if not is_marked(obj):
        return edit
    removed = "its mark as unused is removed: after a release, its TTL starts again"
    return replace(
        edit, annotations={**edit.annotations, UNUSED_SINCE: None, UNUSED_HASH: None}, message=(*edit.message, removed)
    )
