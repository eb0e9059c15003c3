"""The precedence of TTL sources: holds, annotations, the kind's field, policy rules, the namespace."""

import pytest

from shared.core.decision.decide import Context, Reason, decide
from shared.core.decision.namespaces import namespace_of, plain_namespace
from shared.core.policy.policy import NO_POLICY, Policy
from tests.builders import (
    BARE_TRAINJOB,
    JOB,
    NOW,
    POD,
    TRAINJOB,
    ago,
    annotated,
    created,
    ended,
    having,
    job,
    later,
    namespace,
    not_none,
    owned_by,
    pod,
    trainjob,
    without,
)
from tests.unit.core.decision.test_decide import expire, ignore, verdict, wait

HOME = plain_namespace("ci")
OPT_IN = BARE_TRAINJOB.model_copy(update={"opt_in": "it is a handle to data"})
CLUSTERED = JOB.model_copy(update={"scope": "Cluster"})
DONE = job(complete=ago(100))
FAILED = job(failed=ago(100))


def rules(*settings, **alone):
    """A policy whose rules match Jobs by default."""
    given = [{"match": {}} | one for one in settings or (alone,)]
    about = [one | {"match": {"kinds": ["jobs"]} | one["match"]} for one in given]
    return Policy.model_validate({"rules": [{"name": f"rule-{n}"} | one for n, one in enumerate(about)]})


def decided(obj, policy=NO_POLICY, rule=JOB, *, place=HOME, **known):
    return verdict(decide(obj, rule, NOW, Context(policy, place, **known)))


def facts(obj, policy=NO_POLICY, rule=JOB, *, place=HOME, **known):
    return decide(obj, rule, NOW, Context(policy, place, **known)).facts


class TestOrder:
    @pytest.mark.parametrize(
        ("obj", "expected", "source"),
        [
            (annotated(job(complete=ago(100), ttl=110), ttl="90s"), expire(ago(10)), "ttlafterfinished.dev/ttl"),
            (job(complete=ago(100), ttl=110), wait(later(10)), "spec.ttlSecondsAfterFinished"),
            (DONE, wait(later(20)), "policy rule rule-0"),
        ],
        ids=["annotation", "native field", "policy"],
    )
    def test_sources_take_precedence_in_order_object_field_policy_namespace(self, obj, expected, source):
        policy, place = rules(ttl="2m"), namespace_of(namespace(default_ttl="3m"))

        assert decided(obj, policy, place=place) == expected
        assert facts(obj, policy, place=place).ttl.source == source

    def test_first_matching_rule_with_a_ttl_sets_the_ttl(self):
        policy = rules(
            {"match": {"labels": {"matchLabels": {"app": "x"}}}, "ttl": "1s"},
            {"ttl": {"failed": "1h"}},
            {"ttl": "2m"},
            {"ttl": "3m"},
        )

        assert decided(DONE, policy) == wait(later(20))
        assert facts(FAILED, policy).policy_rule.name == "rule-1"

    def test_default_for_the_outcome_takes_precedence_over_the_general_default(self):
        place = namespace_of(namespace(default_ttl="2m", default_ttl_failed="3m"))

        assert decided(DONE, place=place) == wait(later(20))
        assert decided(FAILED, place=place) == wait(later(80))
        assert facts(FAILED, place=place).ttl.source == "ttlafterfinished.dev/default-ttl-failed"

    @pytest.mark.parametrize("never", [rules(ttl="never"), rules({"ttl": "never"}, {"ttl": "1s"})])
    def test_rule_may_set_never(self, never):
        assert decided(DONE, never, place=namespace_of(namespace(default_ttl="1s"))) == ignore("never")

    def test_namespace_default_may_be_never(self):
        assert decided(DONE, place=namespace_of(namespace(default_ttl="never"))) == ignore("never")

    def test_hold_takes_precedence_over_every_ttl(self):
        assert decided(annotated(DONE, hold="why", ttl="1s"), rules(ttl="1s")) == ignore("held")

    def test_object_without_any_source_has_no_ttl(self):
        assert decided(DONE, rules({"match": {"kinds": ["pods"]}, "ttl": "1s"})) == ignore("no-ttl")

    def test_unfinished_object_is_kept_with_any_ttl(self):
        place = namespace_of(namespace(default_ttl="0", max_ttl="0"))

        assert decided(job(), rules(ttl="0s"), place=place) == ignore("unfinished")


ANY, TEAM_A = {"names": ["*"]}, {"matchLabels": {"team": "a"}}


class TestMatching:
    @pytest.mark.parametrize(
        ("match", "matches"),
        [
            ({"namespaces": {"names": ["ci"]}}, True),
            ({"namespaces": {"names": ["c*", "x"]}}, True),
            ({"namespaces": {"names": ["CI"]}}, False),
            ({"namespaces": {"names": ["c*"], "except": ["ci"]}}, False),
            ({"namespaces": {"except": ["prod-*"]}}, True),
            ({"namespaces": {"selector": TEAM_A}}, True),
            ({"namespaces": {"selector": {"matchLabels": {"team": "b"}}}}, False),
            ({"namespaces": {"selector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}}, True),
            ({"labels": {"matchLabels": {"app": "x"}}}, True),
            ({"labels": {"matchLabels": {"app": "y"}}}, False),
            ({"labels": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]}}, True),
            ({"labels": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}}, False),
            ({"labels": {"matchExpressions": [{"key": "no", "operator": "NotIn", "values": ["x"]}]}}, True),
            ({"labels": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, True),
            ({"labels": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, False),
            ({"annotations": {"example.com/team": "a*"}}, True),
            ({"annotations": {"example.com/team": "b*"}}, False),
            ({"annotations": {"example.com/none": "*"}}, False),
            ({"owners": [{"kind": "CronJob"}]}, True),
            ({"owners": [{"kind": "CronJob", "name": "own*"}]}, True),
            ({"owners": [{"kind": "CronJob", "name": "x*"}, {"kind": "Workflow"}]}, False),
            ({"owners": []}, False),
        ],
    )
    def test_rule_matches_only_if_every_field_matches(self, match, matches):
        obj = having(owned_by(DONE, "CronJob"), "metadata.labels", {"app": "x"})
        obj = having(obj, "metadata.annotations", {"example.com/team": "alpha"})
        place = namespace_of(namespace(labels={"team": "a"}))

        assert decided(obj, rules(match=match, ttl="1s"), place=place)[0] == ("expire" if matches else "ignore")

    def test_empty_owners_match_objects_without_a_controller(self):
        assert decided(DONE, rules(match={"owners": []}, ttl="1s"))[0] == "expire"

    @pytest.mark.parametrize(
        ("when", "matches"),
        [
            ("object.spec.backoffLimit == 6", True),
            ("object.spec.backoffLimit == 7", False),
            ("outcome == 'succeeded'", True),
            ("outcome == 'failed'", False),
            ("namespaceObject.metadata.name == 'ci' && namespaceObject.metadata.labels.team == 'a'", True),
            ("namespaceObject.metadata.annotations['x'] == 'y'", True),
        ],
    )
    def test_rule_matches_only_if_its_condition_is_true(self, when, matches):
        place = namespace_of(having(namespace(labels={"team": "a"}), "metadata.annotations", {"x": "y"}))

        assert decided(DONE, rules(when=when, ttl="1s"), place=place)[0] == ("expire" if matches else "ignore")

    @pytest.mark.parametrize("when", ["object.spec.nothing == 1", "object.metadata.name", "object.spec > 1"])
    def test_condition_without_a_result_keeps_and_no_later_rule_applies(self, when):
        policy = rules({"when": when, "ttl": "1h"}, {"ttl": "1s"})

        assert decided(DONE, policy) == ignore("invalid-policy")
        assert "policy rule rule-0: when: " in facts(DONE, policy).problem

    def test_condition_of_a_rule_that_cannot_matter_is_not_evaluated(self):
        broken = {"when": "object.spec.nothing == 1", "ttl": "1h"}

        assert decided(DONE, rules({"ttl": "1s"}, broken))[0] == "expire"
        assert decided(annotated(DONE, ttl="1s"), rules(broken))[0] == "expire"

    def test_condition_of_a_rule_with_min_age_is_evaluated_for_any_ttl_source(self):
        guard = {"when": "object.spec.nothing == 1", "minAge": "1h"}

        assert decided(annotated(DONE, ttl="1s"), rules(guard)) == ignore("invalid-policy")


class TestLimits:
    @pytest.mark.parametrize(
        ("obj", "policy", "settings", "expected"),
        [
            (annotated(DONE, ttl="1h"), NO_POLICY, {}, expire(ago(40))),
            (job(complete=ago(100), ttl=3600), NO_POLICY, {}, expire(ago(40))),
            (annotated(DONE, expire_at=later(3600)), NO_POLICY, {}, expire(ago(40))),
            (DONE, rules(ttl="1h"), {}, expire(ago(40))),
            (DONE, NO_POLICY, {"default_ttl": "1h"}, expire(ago(40))),
            (annotated(DONE, ttl="10s"), NO_POLICY, {}, expire(ago(90))),
            (annotated(DONE, ttl="never"), NO_POLICY, {}, ignore("never")),
            (DONE, rules(ttl="never"), {}, ignore("never")),
            (DONE, NO_POLICY, {}, ignore("no-ttl")),
            (annotated(DONE, hold=""), NO_POLICY, {}, ignore("held")),
        ],
    )
    def test_max_ttl_shortens_every_ttl_except_never(self, obj, policy, settings, expected):
        assert decided(obj, policy, place=namespace_of(namespace(max_ttl="60s", **settings))) == expected

    @pytest.mark.parametrize(
        ("obj", "policy", "settings"),
        [
            (annotated(DONE, ttl="0"), rules(minAge="2m"), {}),
            (annotated(DONE, expire_at=ago(50)), rules(minAge="2m"), {}),
            (job(complete=ago(100), ttl=0), rules(minAge="2m"), {}),
            (DONE, rules(ttl="0s", minAge="2m"), {}),
            (DONE, rules({"ttl": "0s", "minAge": "1m"}, {"minAge": "2m"}, {"minAge": "90s"}), {}),
            (DONE, rules(minAge="2m"), {"default_ttl": "0"}),
            (annotated(DONE, ttl="0"), rules(minAge="2m"), {"max_ttl": "1s"}),
        ],
    )
    def test_largest_min_age_of_matching_rules_delays_every_ttl(self, obj, policy, settings):
        place = namespace_of(namespace(**settings))

        assert decided(obj, policy, place=place) == wait(later(20))
        assert "minAge" in facts(obj, policy, place=place).moved_by

    def test_min_age_without_a_ttl_deletes_nothing(self):
        assert decided(DONE, rules(minAge="1s")) == ignore("no-ttl")

    def test_min_age_without_a_finish_time_keeps_the_object(self):
        obj = annotated(without(DONE, "status.conditions"), expire_at=ago(1))
        obj = having(obj, "status.conditions", [{"type": "Complete", "status": "True"}])

        assert decided(obj)[0] == "expire"
        assert decided(obj, rules(minAge="1s")) == ignore("finish-time-unknown")


class TestExemption:
    @pytest.mark.parametrize("obj", [DONE, annotated(DONE, ttl="0"), job(complete=ago(100), ttl=0)])
    def test_exempt_namespace_keeps_every_object(self, obj):
        assert decided(obj, rules(ttl="0s"), place=namespace_of(namespace(exempt="true"))) == ignore("exempt")

    @pytest.mark.parametrize(
        "settings",
        [
            {"default_ttl": "soon"},
            {"max_ttl": "never"},
            {"exempt": "yes"},
            {"default_ttl_failed": "-1"},
            {"max_ttl": ""},
        ],
    )
    def test_malformed_namespace_annotation_keeps_every_object(self, settings):
        place = namespace_of(namespace(**settings))
        found = facts(annotated(DONE, ttl="0"), place=place)

        assert decided(annotated(DONE, ttl="0"), rules(ttl="0s"), place=place) == ignore("invalid-policy")
        assert found.problem.startswith("namespace ci: annotation ttlafterfinished.dev/")
        assert (found.problem_of.kind, found.problem_of.name) == ("Namespace", "ci")


class TestUnknown:
    """An unknown fact keeps the object with a reason that names it; other reasons need no namespace."""

    @pytest.mark.parametrize(
        ("obj", "policy", "reason"),
        [
            (job(), NO_POLICY, "unfinished"),
            (annotated(DONE, hold=""), NO_POLICY, "held"),
            (annotated(DONE, ttl="soon"), NO_POLICY, "invalid-ttl"),
            (annotated(DONE, ttl="never"), NO_POLICY, "never"),
            (DONE, rules(ttl="never"), "never"),
            (DONE, NO_POLICY, "namespace-unread"),
            (annotated(DONE, ttl="0"), NO_POLICY, "namespace-unread"),
            (DONE, rules(ttl="0s"), "namespace-unread"),
            (DONE, rules(match={"namespaces": {"selector": TEAM_A}}, ttl="0s"), "namespace-unread"),
            (DONE, rules(when="namespaceObject.metadata.name == 'ci'", ttl="0s"), "namespace-unread"),
            (job(conditions=[{"type": "Complete", "status": "True"}], ttl=1), NO_POLICY, "finish-time-unknown"),
        ],
    )
    def test_unread_namespace_keeps_the_object(self, obj, policy, reason):
        assert decided(obj, policy, place=None) == ignore(reason)

    def test_unread_namespace_does_not_hide_the_due_instant_of_the_object(self):
        assert facts(annotated(DONE, ttl="1m"), place=None).due_at == ago(40)

    def test_cluster_scoped_object_needs_no_namespace(self):
        assert decided(DONE, rules(ttl="1s"), CLUSTERED, place=None)[0] == "expire"
        assert decided(DONE, rules(match={"namespaces": ANY}, ttl="1s"), CLUSTERED, place=None)[0] == "expire"
        nowhere = without(DONE, "metadata.namespace")
        assert decided(nowhere, rules(match={"namespaces": ANY}, ttl="1s"), CLUSTERED) == ignore("no-ttl")


class TestOwners:
    OWNED = owned_by(DONE, "PipelineRun")
    OWNED_POD = owned_by(pod(containers=(ended(at=ago(60)),)), "Job")

    @pytest.mark.parametrize(
        ("obj", "policy", "settings", "kept"),
        [
            (OWNED, rules(ttl="1s"), {}, True),
            (OWNED, NO_POLICY, {"default_ttl": "1s"}, True),
            (OWNED, rules(ttl="1s", onOwned="keep"), {}, True),
            (OWNED, rules(ttl="1s", onOwned="delete"), {}, False),
            (annotated(OWNED, ttl="1s"), rules(ttl="1s"), {}, False),
            (annotated(OWNED, owner="ignore"), rules(ttl="1s"), {}, False),
            (having(OWNED, "spec.ttlSecondsAfterFinished", 1), rules(ttl="1h"), {}, False),
        ],
    )
    def test_unfinished_owner_keeps_an_object_with_a_ttl_from_another_source(self, obj, policy, settings, kept):
        place = namespace_of(namespace(**settings))

        assert (decided(obj, policy, place=place, owner_unfinished=True) == ignore("owner-unfinished")) is kept
        assert decided(obj, policy, place=place)[0] == "expire"

    def test_unfinished_owner_keeps_a_pod_with_any_rule_and_is_named(self):
        policy = rules(match={"kinds": ["pods"]}, ttl="1s", onOwned="delete")

        assert decided(self.OWNED_POD, policy, POD, owner_unfinished=True) == ignore("owner-unfinished")
        assert facts(self.OWNED_POD, policy, POD, owner_unfinished=True).owner.name == "owner"

    @pytest.mark.parametrize(
        ("obj", "rule", "settings", "kept"),
        [
            (OWNED_POD, {"ttl": "1s", "onOwned": "delete"}, {}, False),
            (OWNED_POD, {"ttl": "1s", "onOwned": "keep"}, {}, True),
            (OWNED_POD, {"ttl": "1s"}, {}, True),
            (OWNED_POD, {"minAge": "0s"}, {"default_ttl": "1s"}, True),
            (annotated(OWNED_POD, ttl="1s"), {"ttl": "1s", "onOwned": "delete"}, {}, True),
            (annotated(OWNED_POD, owner="ignore"), {"ttl": "1s"}, {}, False),
        ],
    )
    def test_owner_of_an_unknown_kind_keeps_a_pod_unless_the_rule_that_sets_its_ttl_deletes_owned_ones(
        self, obj, rule, settings, kept
    ):
        known = {"place": namespace_of(namespace(**settings)), "owner_unfinished": True, "owner_unknown": True}
        policy = rules(match={"kinds": ["pods"]}, **rule)

        assert (decided(obj, policy, POD, **known) == ignore("owner-unknown")) is kept


class TestOptIn:
    OBJ = trainjob(complete=ago(100), namespace="ci")

    @pytest.mark.parametrize("kinds", [["*"], ["train*"], ["*.kubeflow.org"]])
    def test_pattern_sets_no_ttl_for_an_opt_in_kind(self, kinds):
        assert decided(self.OBJ, rules(match={"kinds": kinds}, ttl="1s"), OPT_IN) == ignore("no-ttl")
        assert decided(self.OBJ, rules(match={"kinds": kinds}, ttl="1s"), BARE_TRAINJOB)[0] == "expire"

    def test_namespace_default_sets_no_ttl_for_an_opt_in_kind(self):
        assert decided(self.OBJ, rule=OPT_IN, place=namespace_of(namespace(default_ttl="1s"))) == ignore("no-ttl")
        assert decided(self.OBJ, rule=OPT_IN, place=None) == ignore("no-ttl")

    def test_named_kind_or_annotation_sets_the_ttl_of_an_opt_in_kind(self):
        assert decided(self.OBJ, rules(match={"kinds": ["*", "trainjobs"]}, ttl="1s"), OPT_IN)[0] == "expire"
        assert decided(annotated(self.OBJ, ttl="1s"), rule=OPT_IN)[0] == "expire"

    def test_min_age_of_a_pattern_applies_to_an_opt_in_kind(self):
        assert decided(annotated(self.OBJ, ttl="1s"), rules(match={"kinds": ["*"]}, minAge="1h"), OPT_IN)[0] == "wait"


class TestAge:
    def aged(self, seconds):
        return created(DONE, ago(seconds))

    def test_rule_with_an_age_applies_from_that_age_on(self):
        policy = rules(match={"age": "1h"}, ttl="1s")

        assert decided(self.aged(3_610), policy) == expire(ago(10))
        assert decided(self.aged(3_590), policy) == wait(later(10))

    def test_next_rule_applies_before_that_age(self):
        policy = rules({"match": {"age": "1h"}, "ttl": "never"}, {"ttl": "2m"})

        assert decided(self.aged(150), policy) == wait(later(20))
        assert decided(self.aged(3_650), policy) == ignore("never")

    def test_rule_with_an_age_may_shorten_the_ttl(self):
        policy = rules({"match": {"age": "5m"}, "ttl": "1s"}, {"ttl": "1h"})

        assert decided(self.aged(280), policy) == wait(later(20))

    def test_rule_with_an_age_and_never_does_not_keep_an_object_that_was_due(self):
        policy = rules({"match": {"age": "1h"}, "ttl": "never"}, {"ttl": "10s"})

        assert decided(self.aged(3_695), policy) == ignore("never")
        assert decided(self.aged(3_685), policy) == expire(ago(90))

    def test_age_without_a_creation_time_keeps_the_object(self):
        policy = rules({"match": {"age": "1h"}, "ttl": "1h"}, {"ttl": "1s"})

        assert decided(without(DONE, "metadata.creationTimestamp"), policy) == ignore("invalid-policy")


class TestKeepLast:
    POLICY = rules(ttl="0s", keepLast=2, keepLastFailed=1)

    @pytest.mark.parametrize(
        ("obj", "newer", "kept"),
        [
            (DONE, 0, True),
            (DONE, 1, True),
            (DONE, 2, False),
            (FAILED, 0, True),
            (FAILED, 1, False),
        ],
    )
    def test_newest_objects_of_a_group_are_kept(self, obj, newer, kept):
        assert (decided(obj, self.POLICY, newer=newer) == ignore("kept-last")) is kept
        assert decided(obj, self.POLICY, newer=None) == ignore("rank-unread")

    def test_newest_objects_with_their_own_ttl_are_kept(self):
        assert decided(annotated(DONE, ttl="0"), rules(keepLast=1), newer=0) == ignore("kept-last")

    def test_rule_for_failed_objects_counts_no_others(self):
        policy = rules({"ttl": "0s", "keepLastFailed": 3}, {"keepLast": 2})

        assert facts(FAILED, policy).keep_last_rule.name == "rule-0"
        assert facts(DONE, policy).keep_last_rule.name == "rule-1"
        assert decided(DONE, rules(ttl="0s", keepLastFailed=3))[0] == "expire"

    @pytest.mark.parametrize(
        ("by", "group"),
        [
            ("namespace", ""),
            ("owner", "owner-uid"),
            ({"label": "app"}, "'x'"),
            ({"cel": "object.metadata.name"}, "build-42"),
        ],
    )
    def test_objects_are_grouped_by_the_grouping_of_the_rule(self, by, group):
        obj = having(owned_by(DONE, "CronJob"), "metadata.labels", {"app": "x"})

        assert facts(obj, rules(ttl="0s", keepLast=1, keepLastBy=by)).group == group

    def test_object_of_an_unknown_group_is_kept(self):
        policy = rules(ttl="0s", keepLast=1, keepLastBy={"cel": "object.metadata.labels.app"})

        assert decided(DONE, policy, newer=5) == ignore("invalid-policy")
        assert "keepLastBy" in facts(DONE, policy).problem

    def test_object_without_a_finish_time_has_no_rank(self):
        obj = job(conditions=[{"type": "Complete", "status": "True"}], expire_at=ago(1))

        assert decided(obj, rules(keepLast=1), newer=5) == ignore("finish-time-unknown")


class TestOverridden:
    """Kubernetes' own controller acts on a Job's field under any other settings."""

    @pytest.mark.parametrize(
        ("obj", "policy", "overridden"),
        [
            (job(complete=ago(100), ttl=60), NO_POLICY, False),
            (job(complete=ago(100), ttl=60, hold="why"), NO_POLICY, True),
            (job(complete=ago(100), ttl=60), rules(minAge="1h"), True),
            (annotated(job(complete=ago(100), ttl=60), ttl="1h"), NO_POLICY, True),
            (annotated(job(complete=ago(100), ttl=60), ttl="never"), NO_POLICY, True),
            (annotated(job(complete=ago(100), ttl=60), ttl="1s"), NO_POLICY, False),
            (annotated(job(ttl=60), ttl="1h"), NO_POLICY, True),
            (annotated(job(ttl=60), ttl="1s"), NO_POLICY, False),
            (job(complete=ago(100), hold="why"), NO_POLICY, False),
        ],
    )
    def test_longer_ttl_than_the_native_field_is_overridden(self, obj, policy, overridden):
        field = facts(obj, policy).overridden

        assert field == ("spec.ttlSecondsAfterFinished" if overridden else "")

    def test_exemption_is_overridden_by_the_native_field(self):
        place = namespace_of(namespace(exempt="true"))

        assert facts(job(complete=ago(100), ttl=60), place=place).overridden


class TestLeftToTheController:
    LEFT = JOB.model_copy(update={"ttl": not_none(JOB.ttl).model_copy(update={"native": "leave"})})

    def test_field_left_to_its_controller_keeps_the_object_under_any_policy(self):
        place = namespace_of(namespace(default_ttl="0"))

        assert decided(job(complete=ago(9), ttl=1), rules(ttl="0s"), self.LEFT, place=place) == ignore(
            "left-to-controller"
        )
        assert decided(annotated(job(complete=ago(9), ttl=1), ttl="1s"), rule=self.LEFT)[0] == "expire"
        assert decided(DONE, rules(ttl="0s"), self.LEFT)[0] == "expire"


def test_unfinished_owner_keeps_an_object_whose_ttl_max_ttl_shortens():
    obj = annotated(trainjob(complete=ago(7_200)), ttl="30d")
    limited = namespace_of(namespace(max_ttl="1h"))

    for unfinished, expected in ((True, Reason.OWNER_UNFINISHED), (False, Reason.EXPIRED)):
        context = Context(namespace=limited, owner_unfinished=unfinished)
        assert decide(obj, TRAINJOB, NOW, context).reason is expected
