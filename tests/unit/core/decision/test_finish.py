"""Whether, when and how an object finished; the tables of whole decisions are in test_decide."""

from datetime import timedelta

import pytest

from shared.core.decision.finish import Finish, finish_of
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.values.objects import format_instant
from tests.builders import JOB, POD, ago, condition, created, ended, having, job, not_none, pod, status_written

UNFINISHED = Finish(finished=False)
UNKNOWN = Finish(finished=None)


def run_rule(*finished_at: str, **values: str) -> KindRule:
    """A kind that finishes by one field, as Workflows and Runs do."""
    return KindRule.model_validate(
        {
            "apiVersions": ["example.com/v1"],
            "kind": "Run",
            "plural": "runs",
            "finished": {"field": "status.state", "values": values or {"Done": "succeeded", "Broken": "failed"}},
            "finishedAt": finished_at or ["status.finishedAt"],
        }
    )


def run(state: object, **status: object) -> dict:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Run",
        "metadata": {"name": "run", "creationTimestamp": "2026-03-14T00:00:00Z"},
        "status": {"state": state, **status},
    }


class TestByConditions:
    @pytest.mark.parametrize(
        ("kind", "outcome"), [("Complete", Outcome.SUCCEEDED), ("Failed", Outcome.FAILED)], ids=["complete", "failed"]
    )
    def test_condition_type_sets_the_outcome(self, kind, outcome):
        assert finish_of(job(conditions=[condition(kind, ago(60))]), JOB) == Finish(True, ago(60), outcome)

    def test_condition_without_a_time_finishes_without_a_time(self):
        assert finish_of(job(conditions=[condition("Failed")]), JOB) == Finish(True, None, Outcome.FAILED)

    def test_condition_before_the_creation_uses_the_newest_status_write(self):
        """If a controller's clock is behind the API server's, its short Jobs must not be kept for ever."""
        obj = created(status_written(job(complete=ago(60)), ago(57)), ago(58))

        assert finish_of(obj, JOB) == Finish(True, ago(57), Outcome.SUCCEEDED)

    @pytest.mark.parametrize("zero", [None, "0001-01-01T00:00:00Z"], ids=["null", "zero"])
    def test_condition_without_a_time_never_uses_a_write(self, zero):
        obj = status_written(job(conditions=[condition("Complete", zero)]), ago(57))

        assert finish_of(obj, JOB) == Finish(True, None, Outcome.SUCCEEDED)

    def test_unknown_outcome_is_none(self):
        rule = JOB.model_copy(
            update={"finished": not_none(JOB.finished).model_copy(update={"conditions": {"Finished": Outcome.UNKNOWN}})}
        )

        assert finish_of(job(conditions=[condition("Finished", ago(60))]), rule) == Finish(True, ago(60), None)

    def test_object_without_a_status_is_unfinished(self):
        assert finish_of({"metadata": {}}, JOB) == UNFINISHED


class TestByField:
    @pytest.mark.parametrize(
        ("state", "outcome"), [("Done", Outcome.SUCCEEDED), ("Broken", Outcome.FAILED)], ids=["done", "broken"]
    )
    def test_field_value_sets_the_outcome(self, state, outcome):
        obj = run(state, finishedAt="2026-03-14T01:00:00Z")

        assert finish_of(obj, run_rule()).outcome is outcome
        assert finish_of(obj, run_rule()).finished is True

    def test_unknown_outcome_is_none(self):
        assert finish_of(run("Over"), run_rule(Over="unknown")) == Finish(True, None, None)

    @pytest.mark.parametrize("state", ["", "done", "Running", None])
    def test_field_with_another_value_is_unfinished(self, state):
        assert finish_of(run(state, finishedAt="2026-03-14T01:00:00Z"), run_rule()) == UNFINISHED

    @pytest.mark.parametrize("state", [0, 3, 1.5, True, ["Done"], {"Done": True}], ids=ascii)
    def test_field_that_is_no_text_is_an_unknown_shape(self, state):
        assert finish_of(run(state), run_rule()) == UNKNOWN

    def test_field_below_a_value_that_is_no_map_is_unfinished(self):
        rule = run_rule().model_copy(
            update={"finished": not_none(run_rule().finished).model_copy(update={"field": "status.a.b"})}
        )

        assert finish_of({"status": {"a": "b"}}, rule) == UNFINISHED


class TestSources:
    def test_path_source_reads_its_instant(self):
        obj = run("Done", finishedAt="2026-03-14T03:00:00+02:00")

        assert not_none(finish_of(obj, run_rule()).at).isoformat() == "2026-03-14T01:00:00+00:00"

    @pytest.mark.parametrize(
        "absent", [None, "", "soon", "0001-01-01T00:00:00Z", "2026-03-13T23:59:59Z", 7, [], {}], ids=ascii
    )
    def test_first_source_with_a_valid_instant_sets_the_finish_time(self, absent):
        rule = run_rule("status.finishedAt", "status.endTime", "managed-fields")
        obj = status_written(run("Done", finishedAt=absent, endTime="2026-03-14T01:00:00Z"), ago(60))

        assert not_none(finish_of(obj, rule).at).isoformat() == "2026-03-14T01:00:00+00:00"
        assert finish_of(having(obj, "status.endTime", absent), rule).at == ago(60)

    def test_earlier_source_takes_precedence_over_a_newer_instant(self):
        rule = run_rule("status.endTime", "managed-fields")
        obj = status_written(run("Done", endTime="2026-03-14T01:00:00Z"), ago(60))

        assert not_none(finish_of(obj, rule).at).isoformat() == "2026-03-14T01:00:00+00:00"

    def test_kind_that_finishes_by_a_field_has_no_finishing_condition(self):
        case = {"when": {"field": "status.state", "values": ["Done"]}, "outcome": "succeeded"}
        data = run_rule().model_dump(by_alias=True, exclude_unset=True)
        rule = KindRule.model_validate(data | {"finished": {"cases": [case]}, "finishedAt": ["finishing-condition"]})

        assert finish_of(run("Done", conditions=[condition("Done", ago(60))]), rule).at is None

    def test_newest_status_write_sets_the_finish_time(self):
        obj = status_written(run("Done"), ago(90), ago(30), ago(60))

        assert finish_of(obj, run_rule("managed-fields")).at == ago(30)

    @pytest.mark.parametrize("entries", [None, {}, "x", [None, "x", {}, {"subresource": "status"}]], ids=ascii)
    def test_malformed_managed_fields_are_ignored(self, entries):
        assert finish_of(having(run("Done"), "metadata.managedFields", entries), run_rule("managed-fields")).at is None

    def test_instant_before_the_start_is_absent(self):
        obj = run("Done", startTime="2026-03-14T02:00:00Z", finishedAt="2026-03-14T01:00:00Z")

        assert finish_of(obj, run_rule()).at is None
        assert finish_of(having(obj, "status.startTime", "2026-03-14T01:00:00Z"), run_rule()).at is not None

    @pytest.mark.parametrize("start", [None, "", "soon", 7, "0001-01-01T00:00:00Z"], ids=ascii)
    def test_unreadable_start_is_ignored(self, start):
        obj = run("Done", startTime=start, finishedAt="2026-03-14T01:00:00Z")

        assert finish_of(obj, run_rule()).at is not None

    def test_container_ends_do_not_count_if_one_is_unknown(self):
        rule = POD.model_copy(update={"finished_at": POD.finished_at[:1]})

        assert finish_of(pod(containers=[ended("a", ago(60)), ended("b", None)]), rule).at is None
        assert finish_of(pod(containers=[], declared=(), init_containers=[ended("i", ago(60))]), rule).at is None
        assert finish_of(pod(containers=[ended("a", ago(60)), ended("b", ago(61))]), rule).at == ago(60)

    def test_fractions_of_a_second_are_kept(self):
        at = ago(60) + timedelta(microseconds=123_456)

        assert finish_of(pod(containers=[ended(at=at)]), POD).at == at


class TestCases:
    """Kinds whose end depends on more than one condition or field."""

    RULE = KindRule.model_validate(
        {
            "apiVersions": ["example.com/v1"],
            "kind": "Run",
            "plural": "runs",
            "finished": {
                "cases": [
                    {"when": {"condition": "Ready"}, "outcome": "succeeded"},
                    {"when": {"condition": "Ready", "status": "False", "reasons": ["Denied"]}, "outcome": "failed"},
                    {"when": {"cel": "has(object.status.lost) && object.status.lost"}, "outcome": "unknown"},
                ],
                "unless": {"annotation": "example.com/again"},
            },
            "observedGeneration": "status.observedGeneration",
            "finishedAt": [
                "finishing-condition",
                {"field": "status.endMillis", "unit": "epoch-milliseconds"},
                {"latest": ["status.parts[*].end", {"condition": "Admitted", "status": "False"}]},
                {"cel": "timestamp(object.status.text)"},
                "all-managed-fields",
            ],
        }
    )

    def run(self, **status):
        return {"metadata": {"generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": status}

    def finish(self, **status):
        return finish_of(self.run(**status), self.RULE)

    def test_first_case_that_holds_sets_outcome_and_time(self):
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"}
        denied = {"type": "Ready", "status": "False", "reason": "Denied", "lastTransitionTime": "2026-01-03T00:00:00Z"}

        assert self.finish(conditions=[ready]).outcome == "succeeded"
        assert self.finish(conditions=[denied]).outcome == "failed"
        assert format_instant(self.finish(conditions=[denied]).at) == "2026-01-03T00:00:00Z"
        assert self.finish(conditions=[denied | {"reason": "Pending"}]).finished is False

    def test_object_that_may_be_retried_is_unfinished(self):
        obj = self.run(lost=True, endMillis=1)
        obj["metadata"]["annotations"] = {"example.com/again": "yes"}

        assert finish_of(obj, self.RULE).finished is False

    @pytest.mark.parametrize(("observed", "finished"), [(1, False), (2, True), (3, True), (None, True), ("1", True)])
    def test_status_of_an_older_spec_is_unfinished(self, observed, finished):
        assert self.finish(lost=True, observedGeneration=observed).finished is finished

    @pytest.mark.parametrize(
        ("status", "at"),
        [
            ({"endMillis": 1_767_312_000_123}, "2026-01-02T00:00:00.123000Z"),
            ({"endMillis": "1767312000123"}, "2026-01-02T00:00:00.123000Z"),
            ({"endMillis": -5}, None),
            ({"endMillis": True}, None),
            ({"endMillis": "9" * 16}, None),
            ({"endMillis": "9" * 400}, None),
            ({"endMillis": 0}, None),
            ({"parts": [{"end": "2026-01-02T00:00:00Z"}, {"end": "2026-01-04T00:00:00Z"}, {}]}, "2026-01-04T00:00:00Z"),
            ({"parts": []}, None),
            (
                {
                    "parts": [{"end": "2026-01-02T00:00:00Z"}],
                    "conditions": [
                        {"type": "Admitted", "status": "False", "lastTransitionTime": "2026-01-05T00:00:00Z"}
                    ],
                },
                "2026-01-05T00:00:00Z",
            ),
            ({"conditions": [{"type": "Admitted", "lastTransitionTime": "2026-01-05T00:00:00Z"}]}, None),
            ({"text": "2026-01-06T00:00:00Z"}, "2026-01-06T00:00:00Z"),
            ({"text": "soon"}, None),
        ],
        ids=str,
    )
    def test_finish_time_is_read_from_each_source(self, status, at):
        found = self.finish(lost=True, **status)

        assert found.finished is True
        assert (found.at and format_instant(found.at)) == at

    def test_newest_write_sets_the_finish_time_if_no_other_time_is_known(self):
        obj = self.run(lost=True)
        obj["metadata"]["managedFields"] = [{"time": "2026-01-07T00:00:00Z"}, {"time": "2026-01-06T00:00:00Z"}]

        assert format_instant(not_none(finish_of(obj, self.RULE).at)) == "2026-01-07T00:00:00Z"

    @pytest.mark.parametrize(
        "status", [{"lost": "yes"}, {"conditions": {"Ready": "True"}}, {"lost": True, "parts": {}}], ids=str
    )
    def test_status_of_an_unexpected_shape_is_unknown(self, status):
        assert finish_of(self.run(**status), self.RULE).finished is None


def test_kind_that_never_finishes_is_unfinished():
    rule = KindRule.model_validate(
        {"apiVersions": ["v1"], "kind": "Server", "plural": "servers", "neverFinishes": "it serves until it is deleted"}
    )

    assert finish_of({"status": {"phase": "Succeeded"}}, rule).finished is False
