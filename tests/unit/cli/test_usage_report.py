"""What `references` and `unused` say about one Secret or ConfigMap."""

from dataclasses import replace
from datetime import timedelta

import pytest

from shared.cli.deleters.in_force import PolicyInForce
from shared.cli.usage.findings import UsageFinding, find_usage_kind
from shared.cli.usage.usage_report import (
    USAGE_WORDS,
    describe_unknown,
    is_unsure,
    usage_as_json,
    usage_as_text,
)
from shared.core.policy.policy import NO_POLICY
from shared.core.usage.decide_unused import UnusedContext, decide_unused
from shared.core.usage.mark import ANNOTATIONS_BYTES_MAX
from shared.core.usage.unused_reasons import NEVER_DELETED, UnusedReason
from shared.ports import Target
from tests.builders import NOW, ago, having
from tests.usage import config_map, kind_of, opted_in, passed, refer, unused_policy

POLICY = unused_policy()
CHOSEN = PolicyInForce(NO_POLICY, why="a test")


def finding(obj, *observations, policy=POLICY):
    context = UnusedContext(policy, opted_in(), observations)
    decision = decide_unused(obj, kind_of(obj), NOW, context)
    return UsageFinding(Target(obj, NOW, 2), decision, observations[-1], NOW)


def test_each_reason_has_a_sentence():
    assert USAGE_WORDS.keys() == {*UnusedReason}
    assert USAGE_WORDS.keys() > NEVER_DELETED


@pytest.mark.parametrize(
    ("obj", "observed", "used", "decision"),
    [
        (config_map(), passed(ago(20), refer()), True, "keep"),
        (config_map(marked=ago(60)), passed(ago(20), refer()), True, "unmark"),
        (config_map(), passed(ago(20)), False, "mark"),
        (config_map(marked=ago(60)), passed(ago(20)), False, "wait"),
        (config_map(), passed(ago(20), problem="pods cannot be listed"), None, "keep"),
        (config_map(), passed(ago(20), refer(problem="expected a name")), None, "keep"),
        (config_map(), passed(ago(20), refer(), problem="pods cannot be listed"), True, "keep"),
    ],
)
def test_used_is_true_false_or_unknown(obj, observed, used, decision):
    found = usage_as_json(finding(obj, observed))
    assert (found["used"], found["decision"]) == (used, decision)
    assert ("problem" in found) == (used is None)
    assert len(found["references"]) == (used is True)


def test_objects_of_unknown_use_are_counted_by_the_object_and_the_field_that_are_the_cause():
    foreign, here = (passed(ago(20), refer(problem=problem)) for problem in ("may name it", "expected a name"))
    one = finding(config_map(), foreign)
    assert describe_unknown([one, finding(config_map(), here), one]) == (
        "3 more may be used: 2 by Pod ci/web: may name it; 1 by Pod ci/web: expected a name; see `references`"
    )
    others = [finding(config_map(), passed(ago(20), refer(problem=f"p{number}"))) for number in range(5)]
    assert "; and 2 by others; see" in describe_unknown(others)


def test_due_object_has_its_times():
    marked_at = NOW - timedelta(days=2)
    found = usage_as_json(finding(config_map(marked=marked_at), passed(ago(40)), passed(ago(20))))

    assert (found["decision"], found["reason"], found["policyRule"]) == ("delete", "unused", "rotated")
    assert found["unusedSince"] < found["dueAt"]
    assert found["lookedAt"]["kinds"] == 2


def test_text_names_each_field_that_refers():
    text = usage_as_text(finding(config_map(), passed(ago(20), refer())), CHOSEN)
    lines = text.splitlines()
    assert lines[1] == "  decision  kept (used): an object refers to it"
    assert lines[2] == "  used by   Pod ci/web, spec.volumes[0].configMap.name"


@pytest.mark.parametrize(
    ("policy", "observed", "is_known", "unsure"),
    [
        (NO_POLICY, passed(ago(20)), True, False),
        (NO_POLICY, passed(ago(20)), False, True),
        (NO_POLICY, passed(ago(20), problem="pods cannot be listed"), False, True),
        (NO_POLICY, passed(ago(20), refer()), False, False),
    ],
)
def test_unknown_policy_makes_a_decision_unsure_that_another_policy_may_change(policy, observed, is_known, unsure):
    chosen = PolicyInForce(policy, why="forbidden", is_known=is_known)
    one = finding(config_map(), observed, policy=policy)
    assert is_unsure(one, chosen) is unsure
    assert ("  do        name the policy" in usage_as_text(one, chosen)) is unsure
    assert usage_as_json(one, chosen).get("problem", "").startswith("policy: unknown: forbidden") is (
        unsure and one.is_used is False
    )


@pytest.mark.parametrize(
    ("obj", "observed", "words"),
    [
        (config_map(used=None), passed(ago(20), refer()), "its use cannot be recorded"),
        (config_map(), passed(ago(20)), "it cannot be marked"),
        (config_map(), passed(ago(20), refer()), ""),
    ],
)
def test_full_annotations_are_named_if_a_record_or_a_mark_has_no_room(obj, observed, words):
    for room, is_full in ((0, True), (200, False)):
        notes = obj["metadata"].get("annotations", {})
        left = ANNOTATIONS_BYTES_MAX - room - sum(len(key) + len(value) for key, value in notes.items()) - len("notes")
        full = having(obj, "metadata.annotations", {**notes, "notes": "x" * left})
        text = usage_as_text(finding(full, observed), CHOSEN)
        assert (f"  problem   {words}" in text) is (is_full and bool(words)), text
        assert ("problem" in usage_as_json(finding(full, observed))) is (is_full and bool(words))


def test_text_shows_some_of_many_references():
    many = [replace(refer(), path=f"spec.volumes[{place}]") for place in range(100)]
    text = usage_as_text(finding(config_map(), passed(ago(20), *many)), CHOSEN)
    assert "at least 80 more" in text


@pytest.mark.parametrize(
    ("word", "kind"), [("cm", "ConfigMap"), ("ConfigMap", "ConfigMap"), ("secrets", "Secret"), ("pods", None)]
)
def test_kind_is_found_by_its_names(word, kind):
    rule = find_usage_kind(word)
    assert (rule.kind if rule else None) == kind
