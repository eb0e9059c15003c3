"""The edit that holds a Secret or a ConfigMap."""

import pytest

from shared.core.policy.usage import CONFIG_MAPS
from shared.core.usage.mark import UNUSED_HASH, UNUSED_SINCE, hold_unused
from shared.core.values.objects import ANNOTATION_DOMAIN
from tests.builders import ago, annotated, having
from tests.usage import DAY, config_map


def test_hold_unused_changes_only_its_annotation():
    edit = hold_unused(config_map(), CONFIG_MAPS, "read by a script")

    assert edit.patch(config_map()) == {
        "metadata": {"resourceVersion": "42", "annotations": {f"{ANNOTATION_DOMAIN}/hold": "read by a script"}}
    }
    assert edit.message == ()


def test_hold_unused_removes_the_mark_so_that_a_release_starts_the_ttl_again():
    edit = hold_unused(config_map(marked=ago(2 * DAY)), CONFIG_MAPS, "read by a script")

    assert edit.annotations == {"hold": "read by a script", UNUSED_SINCE: None, UNUSED_HASH: None}
    assert len(edit.message) == 1


def test_hold_unused_names_the_reason_that_it_replaces():
    edit = hold_unused(annotated(config_map(), hold="before"), CONFIG_MAPS, "after")

    assert "'before'" in " ".join(edit.message)


@pytest.mark.parametrize(
    ("obj", "reason", "expected"),
    [
        (config_map(), " ", "reason"),
        (having(config_map(), "metadata.deletionTimestamp", "2026-03-14T15:00:00Z"), "why", "being deleted"),
    ],
    ids=["empty reason", "terminating"],
)
def test_hold_unused_rejects_what_has_no_effect(obj, reason, expected):
    with pytest.raises(ValueError, match=expected):
        hold_unused(obj, CONFIG_MAPS, reason)
