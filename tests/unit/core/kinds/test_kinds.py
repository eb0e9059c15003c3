"""Kind rules: their schema, the shipped files, and how the catalogue finds them."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from shared.core.kinds.predicates import FinishSource
from shared.core.kinds.rule import Catalogue, KindRule
from tests.builders import JOB, POD, TRAINJOB, having, kind_rules, shipped_kinds, without

RULE: dict[str, Any] = {
    "apiVersions": ["example.com/v1"],
    "kind": "Run",
    "plural": "runs",
    "finished": {"conditions": {"Done": "succeeded"}},
    "finishedAt": ["finishing-condition"],
}


class TestSchema:
    def test_minimal_rule_has_defaults(self):
        rule = KindRule.model_validate(RULE)

        assert rule.scope == "Namespaced"
        assert rule.short_names == ()
        assert rule.ttl is None
        assert rule.dependents == "held"
        assert rule.while_owner_unfinished == "delete"
        assert rule.propagation == "Background"

    @pytest.mark.parametrize("field", ["apiVersions", "kind", "plural"])
    def test_rule_without_a_required_field_is_rejected_with_its_name(self, field):
        assert where_it_fails(without(RULE, field)) == {field}

    @pytest.mark.parametrize("field", ["finished", "finishedAt"])
    def test_rule_without_finished_or_finished_at_is_rejected(self, field):
        with pytest.raises(ValidationError, match="expected both finished and finishedAt, or neverFinishes"):
            KindRule.model_validate(without(RULE, field))

    def test_rule_with_never_finishes_needs_no_finish(self):
        rule = KindRule.model_validate(
            without(without(RULE, "finished"), "finishedAt") | {"neverFinishes": "it serves"}
        )

        assert rule.never_finishes == "it serves"
        with pytest.raises(ValidationError, match="beside neverFinishes"):
            KindRule.model_validate(RULE | {"neverFinishes": "it serves"})

    @pytest.mark.parametrize("dependents", ["free", "kept"])
    def test_rule_that_replaces_finished_objects_holds_the_running_ones(self, dependents):
        replacing = RULE | {"replacesFinished": ["pods", "jobs.batch"]}

        assert KindRule.model_validate(replacing).replaces_finished == ("pods", "jobs.batch")
        with pytest.raises(ValidationError, match="expected no dependents beside replacesFinished"):
            KindRule.model_validate(replacing | {"dependents": dependents})

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("apiVersions", ""),
            ("apiVersions", []),
            ("apiVersions", [""]),
            ("apiVersions", ["batch"]),
            ("apiVersions", ["batch/v1/jobs"]),
            ("apiVersions", ["v1\n"]),
            ("apiVersions", [1]),
            ("apiVersions", ["batch/v1", "example.com/v1"]),
            ("kind", ""),
            ("kind", "run"),
            ("kind", "Run Me"),
            ("plural", ""),
            ("plural", "Runs"),
            ("plural", "runs/status"),
            ("plural", None),
            ("scope", "namespaced"),
            ("scope", None),
            ("shortNames", "r"),
            ("shortNames", [1]),
            ("finished", {}),
            ("finished", "Done"),
            ("finished", {"conditions": {}}),
            ("finished", {"field": "status.phase"}),
            ("finished", {"field": "status.phase", "values": {}}),
            ("finished", {"values": {"Done": "succeeded"}}),
            ("finished", {"conditions": {"Done": "failed"}, "values": {"Done": "failed"}}),
            ("finished", {"conditions": {"Done": "failed"}, "field": "status.phase", "values": {"Done": "failed"}}),
            ("finished.conditions", ["Done"]),
            ("finished.conditions.Done", "success"),
            ("finished.conditions.Done", True),
            ("finished.field", "phase"),
            ("finished.field", "status..phase"),
            ("finished.field", ".status.phase"),
            ("finished.field", "status.phase."),
            ("finished.field", "status.phases[0]"),
            ("finished.phase", "status.phase"),
            ("finishedAt", None),
            ("finishedAt", [{"field": "status.end", "unit": "hours"}]),
            ("finishedAt", [{"condition": "Done", "status": 1}]),
            ("finishedAt", [{"latest": []}]),
            ("finishedAt", [{"cel": "object.status.phase == 'x'"}]),
            ("finishedAt", [{"file": "status.end"}]),
            ("finished", {"cases": [{"when": {}, "outcome": "failed"}]}),
            ("finished", {"cases": [{"when": {"field": "status.x", "label": "x"}, "outcome": "failed"}]}),
            ("finished", {"cases": [{"when": {"label": "x", "reasons": ["y"]}, "outcome": "failed"}]}),
            ("finished", {"cases": [{"when": {"cel": "object.status."}, "outcome": "failed"}]}),
            ("finished", {"cases": [{"when": {"cel": "now > 1"}, "outcome": "failed"}]}),
            ("finished", {"field": "status.x[*].y", "values": {"Done": "failed"}}),
            ("finished", {"cases": [], "unless": {"label": "x"}}),
            ("observedGeneration", "observed"),
            ("dependents", "maybe"),
            ("replacesFinished", "pods"),
            ("replacesFinished", ["Pod"]),
            ("optIn", ""),
            ("neverFinishes", 1),
            ("finishedAt", "finishing-condition"),
            ("finishedAt", ["finishing_condition"]),
            ("finishedAt", ["completionTime"]),
            ("ttl.fields", []),
            ("ttl.fields", [{"path": "ttlSecondsAfterFinished"}]),
            ("ttl.fields", [{"path": "spec.ttl", "unit": "hours"}]),
            ("ttl", {"fields": [{"path": "spec.ttl"}], "native": "maybe"}),
            ("ttl", {"fields": [{"path": "spec.ttl"}], "zero": "now"}),
            ("whileOwnerUnfinished", "ignore"),
            ("propagation", "background"),
            ("propagation", None),
            ("propagationPolicy", "Background"),
            ("ttl", 3600),
        ],
        ids=lambda value: value if isinstance(value, str) else ascii(value),
    )
    def test_rule_with_a_malformed_field_is_rejected_with_its_name(self, path, value):
        assert any(f"{where}.".startswith(f"{path}.") for where in where_it_fails(having(RULE, path, value)))

    @pytest.mark.parametrize("source", ["finishing-condition", {"latest": ["finishing-condition-update"]}])
    def test_finish_source_of_a_condition_needs_a_finishing_condition(self, source):
        field = having(RULE, "finished", {"field": "status.phase", "values": {"Done": "succeeded"}})

        assert where_it_fails(field | {"finishedAt": ["managed-fields", source]}) == {"finishedAt"}

    def test_message_names_the_expected_form(self):
        with pytest.raises(ValidationError, match="expected one of `conditions`, `field`"):
            KindRule.model_validate(having(RULE, "finished", {}))

    @pytest.mark.parametrize("rule", [None, [], "Run", 7], ids=ascii)
    def test_rule_that_is_no_map_is_rejected(self, rule):
        with pytest.raises(ValidationError):
            KindRule.model_validate(rule)

    def test_rule_is_immutable(self):
        with pytest.raises(ValidationError):
            setattr(KindRule.model_validate(RULE), "kind", "Walk")  # noqa: B010 - mypy knows that it is read-only

    def test_finish_source_is_a_known_source_or_a_path(self):
        rule = KindRule.model_validate(RULE | {"finishedAt": ["managed-fields", "status.endTime"]})

        assert rule.finished_at == (FinishSource.MANAGED_FIELDS, "status.endTime")
        assert isinstance(rule.finished_at[0], FinishSource)
        assert not isinstance(rule.finished_at[1], FinishSource)


def where_it_fails(rule: Any) -> set[str]:
    with pytest.raises(ValidationError) as error:
        KindRule.model_validate(rule)
    return {".".join(map(str, problem["loc"])) for problem in error.value.errors()}


class TestShippedRules:
    def test_shipped_rules_have_distinct_kinds_and_paths(self):
        rules = kind_rules().values()

        assert len({(version, rule.kind) for rule in rules for version in rule.api_versions}) == sum(
            len(rule.api_versions) for rule in rules
        )
        assert len({(rule.api_version, rule.plural) for rule in rules}) == len(rules)

    def test_shipped_rules_include_jobs_pods_and_trainjobs(self):
        assert {"job", "pod", "trainjob"} <= kind_rules().keys()

    def test_short_names_of_shipped_rules_are_in_lower_case(self):
        names = [name for rule in kind_rules().values() for name in rule.short_names]
        assert names == [name.lower() for name in names]

    def test_pod_rule_keeps_pods_of_an_unfinished_owner(self):
        assert [rule.while_owner_unfinished for rule in (JOB, POD, TRAINJOB)] == ["delete", "keep", "delete"]

    def test_job_rule_deletes_dependents_in_the_background(self):
        assert JOB.propagation == "Background"


class TestCatalogue:
    KINDS = Catalogue((JOB, POD, TRAINJOB))

    def test_kind_is_found_by_api_version_and_kind(self):
        assert self.KINDS.get("batch/v1", "Job") is JOB
        assert self.KINDS.get("v1", "Pod") is POD

    @pytest.mark.parametrize(
        ("api_version", "kind"),
        [("v1", "Job"), ("batch/v1", "job"), ("batch/v2", "Job"), ("", ""), ("batch/v1", "Pod")],
    )
    def test_unknown_api_version_or_kind_is_not_found(self, api_version, kind):
        assert self.KINDS.get(api_version, kind) is None

    @pytest.mark.parametrize(
        ("words", "rules"),
        [
            pytest.param((), (JOB, POD, TRAINJOB), id="no word: all"),
            pytest.param(("jobs",), (JOB,), id="the plural"),
            pytest.param(("Job",), (JOB,), id="the kind"),
            pytest.param(("JOBS",), (JOB,), id="in any case"),
            pytest.param(("jobs.batch",), (JOB,), id="plural and group"),
            pytest.param(("trainjobs.trainer.kubeflow.org",), (TRAINJOB,), id="plural and a long group"),
            pytest.param(("po",), (POD,), id="the short name"),
            pytest.param(("trainjob", "po"), (POD, TRAINJOB), id="two, in the catalogue's order"),
            pytest.param(("job", "jobs"), (JOB,), id="twice the same"),
        ],
    )
    def test_kind_is_found_by_each_of_its_names(self, words, rules):
        named = self.KINDS.parse_names(words)

        assert named.rules == rules
        assert all(named.get(rule.api_version, rule.kind) is rule for rule in rules)

    @pytest.mark.parametrize("word", ["", "cronjobs", "jobs.example.com", "jo", "job ", "*"])
    def test_unknown_name_is_an_error_with_the_command_that_lists_kinds(self, word):
        with pytest.raises(ValueError, match=re.escape(f"unknown kind {word!r}: expected a kind")) as reported:
            self.KINDS.parse_names(("jobs", word))
        assert str(reported.value).endswith("`ttl-after-finished kinds` lists them")

    @pytest.mark.parametrize(
        ("slip", "meant"), [("jbos", "jobs.batch"), ("trainjbo", "trainjobs.trainer.kubeflow.org")]
    )
    def test_misspelled_name_is_an_error_with_a_suggestion(self, slip, meant):
        with pytest.raises(ValueError, match=rf"perhaps {re.escape(meant)}\b"):
            self.KINDS.parse_names((slip,))

    def test_part_of_a_catalogue_has_no_other_kinds(self):
        assert self.KINDS.parse_names(("jobs",)).get("v1", "Pod") is None


def kind(plural, group, **fields):
    """A rule of a kind that shares its names with other kinds."""
    api_version = f"{group}/v1" if group else "v1"
    finishing = {"finished": {"conditions": {"Complete": "succeeded"}}, "finished_at": ["finishing-condition"]}
    return KindRule(api_versions=[api_version], kind=plural[:-1].capitalize(), plural=plural, **(fields or finishing))


class TestNamesThatKindsShare:
    BUILT_IN, VOLCANO = kind("jobs", "batch"), kind("jobs", "batch.volcano.sh")
    ARGO, CHAOS = kind("workflows", "argoproj.io"), kind("workflows", "chaos-mesh.org")
    NEVER = kind("workflows", "example.com", never_finishes="it is a template")
    KINDS = Catalogue((VOLCANO, BUILT_IN, ARGO, CHAOS, NEVER))

    @pytest.mark.parametrize("word", ["job", "jobs", "Job"])
    def test_shared_name_means_the_built_in_kind(self, word):
        assert self.KINDS.find_by_name(word) == (self.BUILT_IN,)
        assert self.KINDS.parse_names((word,)).rules == (self.BUILT_IN,)

    @pytest.mark.parametrize("word", ["jobs.batch.volcano.sh", "job.batch.volcano.sh"])
    def test_name_with_a_group_means_the_kind_of_that_group(self, word):
        assert self.KINDS.parse_names((word,)).rules == (self.VOLCANO,)

    def test_shared_name_without_a_built_in_kind_means_each_kind(self):
        assert self.KINDS.find_by_name("workflow") == (self.ARGO, self.CHAOS, self.NEVER)

    def test_ambiguous_name_is_an_error_with_the_names_that_finish(self):
        expected = "'workflow' is ambiguous: expected one of workflows.argoproj.io, workflows.chaos-mesh.org"
        with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
            self.KINDS.parse_names(("workflow",))

    def test_kind_that_never_finishes_makes_no_name_ambiguous(self):
        assert Catalogue((self.ARGO, self.NEVER)).parse_names(("workflow",)).rules == (self.ARGO,)

    def test_several_rules_of_one_kind_are_one_kind(self):
        older = kind("workflows", "argoproj.io").model_copy(update={"api_versions": ("argoproj.io/v1alpha1",)})
        assert Catalogue((self.ARGO, older)).parse_names(("workflows",)).rules == (self.ARGO, older)


@pytest.mark.parametrize(
    ("group", "kind", "label"),
    [
        ("velero.io", "Backup", "Backup.velero.io"),
        ("batch", "Job", "Job"),
        ("batch.volcano.sh", "Job", "Job.batch.volcano.sh"),
        ("kubeflow.org", "MPIJob", "MPIJob"),  # two versions of one group are one kind
    ],
)
def test_label_distinguishes_kinds_of_one_name(group, kind, label):
    assert shipped_kinds().label_of(group, kind) == label
