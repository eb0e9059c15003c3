"""The edits by which `set` sets and removes a deadline."""

import pytest

from shared.core.deadlines.deadline import Stage
from shared.core.ttl.edits import Edit, check_deadline, merge_edits, set_deadlines, set_ttl, unset_deadline
from tests.builders import JOB, POD, ago, having, job, not_none, pod

CANNOT = POD.model_copy(
    update={
        "deadline": JOB.deadline
        and JOB.deadline.model_copy(
            update={"stop": None, "suspend": None, "exception": None, "cannot_stop": "Pods just end"}
        )
    }
)


@pytest.mark.parametrize("value", ["1", "90s", "1h30m", "2d", "never"])
def test_deadline_is_a_duration_or_never(value):
    check_deadline(value)
    assert set_deadlines(job(), JOB, {Stage.ACTIVE: value}, None).annotations == {"active-deadline": value}


@pytest.mark.parametrize("value", ["0", "0s", "-1", "soon", "1" + "0" * 20, "", "2026-01-02T03:04:05Z"])
def test_anything_else_is_refused_with_what_was_expected(value):
    with pytest.raises(ValueError, match=r"^expected "):
        check_deadline(value)
    with pytest.raises(ValueError, match=r"^expected "):
        set_deadlines(job(), JOB, {Stage.ACTIVE: value}, None)


def test_action_is_set_beside_the_deadline_or_alone():
    both = {"active-deadline": "6h", "on-deadline": "delete"}
    assert set_deadlines(job(), JOB, {Stage.ACTIVE: "6h"}, "delete").annotations == both
    assert set_deadlines(job(), JOB, {}, "stop").annotations == {"on-deadline": "stop"}


def test_deadline_of_a_kind_that_cannot_be_stopped_is_refused_unless_it_is_deleted():
    with pytest.raises(ValueError, match=r"Pod cannot be stopped: Pods just end; .* add --on-deadline delete$"):
        set_deadlines(pod(), CANNOT, {Stage.ACTIVE: "6h"}, None)
    assert set_deadlines(pod(), CANNOT, {Stage.ACTIVE: "6h"}, "delete").annotations["on-deadline"] == "delete"
    deletes = pod(on_deadline="delete")
    assert set_deadlines(deletes, CANNOT, {Stage.ACTIVE: "6h"}, None).annotations == {"active-deadline": "6h"}
    with pytest.raises(ValueError, match="cannot be stopped"):
        set_deadlines(deletes, CANNOT, {Stage.ACTIVE: "6h"}, "stop")


def test_object_is_suspended_at_its_deadline_only_if_its_kind_can_be():
    assert set_deadlines(job(), JOB, {Stage.ACTIVE: "6h"}, "suspend").annotations["on-deadline"] == "suspend"
    with pytest.raises(ValueError, match="a Pod cannot be suspended: the kind has no patch"):
        set_deadlines(pod(), POD, {Stage.ACTIVE: "6h"}, "suspend")
    remote = having(job(), "spec.managedBy", "kueue.x-k8s.io/multikueue")
    with pytest.raises(ValueError, match=r"a Job cannot be stopped: spec\.managedBy names another controller"):
        set_deadlines(remote, JOB, {Stage.ACTIVE: "6h"}, None)


def test_deadline_of_a_kind_without_a_rule_for_it_is_refused_but_never_is_not():
    rule = JOB.model_copy(update={"deadline": None})
    with pytest.raises(ValueError, match="has no `deadline`"):
        set_deadlines(job(), rule, {Stage.ACTIVE: "6h"}, "delete")
    assert set_deadlines(job(), rule, {Stage.ACTIVE: "never"}, None).annotations == {"active-deadline": "never"}


def test_deadline_of_an_object_that_is_being_deleted_is_refused():
    with pytest.raises(ValueError, match="being deleted"):
        set_deadlines(
            having(job(), "metadata.deletionTimestamp", "2026-01-02T03:04:05Z"), JOB, {Stage.ACTIVE: "6h"}, None
        )


def test_unset_removes_the_deadline_and_keeps_the_mark_of_a_stop():
    stopped = job(active_deadline="6h", on_deadline="stop", deadline_exceeded="2026-01-02T03:04:05Z", stops="1")
    edit = unset_deadline(stopped)
    assert edit is not None
    assert edit.annotations == {"active-deadline": None, "on-deadline": None}
    assert unset_deadline(job(deadline_exceeded="2026-01-02T03:04:05Z", ttl="1h")) is None


def test_ttl_and_deadline_are_written_by_one_patch():
    obj = job(complete=ago(0), expire_at="2026-01-02T03:04:05Z")
    merged = merge_edits(set_ttl(obj, JOB, "1h"), None, set_deadlines(obj, JOB, {Stage.ACTIVE: "6h"}, None))
    assert merged is not None
    assert merged.annotations == {"ttl": "1h", "expire-at": None, "active-deadline": "6h"}
    assert "would take precedence" in merged.message[0]
    assert merge_edits(None, None) is None
    assert merge_edits(Edit({"ttl": None}), None) == Edit({"ttl": None})


def test_pending_deadline_is_set_on_a_kind_that_has_one_and_removed_with_the_others():
    both = {Stage.PENDING: "1h", Stage.ACTIVE: "6h"}
    edit = set_deadlines(pod(), POD, both, "delete")

    assert edit.annotations == {"pending-deadline": "1h", "active-deadline": "6h", "on-deadline": "delete"}
    removed = not_none(unset_deadline(pod(pending_deadline="1h", on_deadline="delete")))
    assert removed.annotations == {"pending-deadline": None, "on-deadline": None}
    with pytest.raises(ValueError, match="a Job has no pending deadline"):
        set_deadlines(job(), JOB, {Stage.PENDING: "1h"}, None)
