"""The block `deadline` of a kind rule: its defaults, and clear errors for what it must not be."""

import pytest
from pydantic import ValidationError

from shared.adapters.config.yaml_file import describe_problem
from shared.core.kinds.predicates import ConditionTime
from shared.core.kinds.rule import KindRule
from shared.core.kinds.ttl_and_deadline import DeadlineRule
from tests.builders import not_none

STOP = {"patch": {"spec": {"suspend": True}}}
SUSPEND = STOP | {"ends": {"condition": "Suspended"}}
EXCEPTION = {"when": {"field": "spec.managedBy"}, "why": "another controller"}
NATIVE = {"fields": [{"path": "spec.limit"}], "honouredBy": "its operator"}


def deadline(**parts):
    return {"startedAt": ["status.startTime"], "stop": STOP} | parts


def problem(block):
    with pytest.raises(ValidationError) as raised:
        DeadlineRule.model_validate(block)
    return describe_problem(raised.value.errors(include_url=False)[0])


def test_deadline_with_a_start_and_a_stop_is_enough():
    rule = DeadlineRule.model_validate(deadline())
    assert (rule.suspended, rule.native, rule.cannot_stop) == (None, None, None)
    assert not_none(rule.stop).end_times == ()


def test_native_deadline_has_defaults():
    native = not_none(DeadlineRule.model_validate(deadline(native=NATIVE)).native)
    assert (native.zero, native.negative, native.defaulted) == ("now", "invalid", False)


def test_end_of_a_stop_is_that_of_its_condition():
    rule = DeadlineRule.model_validate(deadline(stop=STOP | {"ends": {"condition": "Suspended"}}))
    assert not_none(rule.stop).end_times == (ConditionTime(condition="Suspended"),)


def test_end_of_a_stop_can_have_sources_of_its_own():
    ends = {"ends": {"field": "status.phase", "values": ["Paused"]}, "endedAt": ["managed-fields"]}
    rule = DeadlineRule.model_validate(deadline(stop=STOP | ends))
    assert [str(source) for source in not_none(rule.stop).end_times] == ["managed-fields"]


def test_each_action_has_its_patch():
    ends = DeadlineRule.model_validate(deadline(stop={"patch": {"spec": {"limit": 1}}}, suspend=SUSPEND, native=NATIVE))
    suspends = DeadlineRule.model_validate(deadline(stop=SUSPEND, native=NATIVE))

    assert [ends.find_stop(action) for action in ("stop", "suspend", "delete")] == [ends.stop, ends.suspend, None]
    assert [suspends.find_stop(action) for action in ("stop", "suspend")] == 2 * [suspends.stop]
    assert (ends.suspending, ends.sets_native) == (ends.suspend, True)
    assert (suspends.suspending, suspends.sets_native) == (suspends.stop, False)
    assert DeadlineRule.model_validate(deadline()).find_stop("suspend") is None


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"stop": STOP}, "startedAt"),
        (deadline(startedAt=[]), "startedAt"),
        (deadline(startedAt=["finishing-condition"]), "finishing-condition is about the finish"),
        (deadline(startedAt=[{"latest": ["finishing-condition"]}]), "finishing-condition is about the finish"),
        (deadline(cannotStop="its operator has no such field"), "exactly one of stop and cannotStop"),
        ({"startedAt": ["status.startTime"]}, "exactly one of stop and cannotStop"),
        (deadline(cannotStop=""), "cannotStop"),
        (deadline(stop={"patch": {}}), "patch"),
        (deadline(stop={"patch": {"spec": {}}}), "expected a merge patch of spec"),
        (deadline(stop={"patch": {"kind": "Job"}}), "expected a merge patch of spec"),
        (deadline(stop={"patch": {"metadata": {"finalizers": []}}}), "expected a merge patch of spec"),
        (deadline(stop={"patch": {"metadata": "x"}}), "expected a merge patch of spec"),
        (deadline(stop=STOP | {"ends": {"field": "status.phase"}}), "expected endedAt beside ends"),
        (deadline(stop=STOP | {"ends": {"condition": "Ready", "status": "False"}}), "expected endedAt beside ends"),
        (deadline(stop=STOP | {"endedAt": ["managed-fields"]}), "expected ends beside endedAt"),
        (
            deadline(stop=STOP | {"ends": {"condition": "Suspended"}, "endedAt": ["finishing-condition"]}),
            "finishing-condition needs a condition that finishes",
        ),
        (deadline(native={"fields": [{"path": "spec.limit"}]}), "honouredBy"),
        (deadline(native=NATIVE | {"zero": "delete"}), "zero"),
        (deadline(native=NATIVE | {"fields": []}), "fields"),
        (deadline(native=NATIVE | {"native": "act"}), "native"),
        (deadline(suspended={}), "suspended"),
        (deadline(suspend={"field": "spec.suspend"}), "suspend"),
        (deadline(suspended=None), "expected a value for suspended"),
        (deadline(suspend=STOP), "expected ends: a suspended object does not finish by itself"),
        (deadline(stop=SUSPEND, suspend=SUSPEND), "expected suspend only beside a stop without ends"),
        (deadline(stop=SUSPEND | {"finishes": False}), "expected no `finishes: false` beside ends"),
        (deadline(waiters=[]), "waiters"),
        (
            {"startedAt": ["status.startTime"], "cannotStop": "why", "exception": EXCEPTION},
            "expected no exception beside cannotStop",
        ),
    ],
)  # fmt: skip
def test_bad_deadline_is_a_clear_error(block, message):
    assert message in problem(block)


def test_kind_that_never_finishes_has_no_deadline():
    rule = {"apiVersions": ["v1"], "kind": "Lamp", "plural": "lamps", "neverFinishes": "why", "deadline": deadline()}
    with pytest.raises(ValidationError, match="expected no finished, finishedAt, ttl, deadline and children"):
        KindRule.model_validate(rule)
