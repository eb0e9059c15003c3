"""The models of a policy file: what they accept, and what they reject with which message."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from shared.core.kinds.rule import Outcome
from shared.core.policy.limits import Limits
from shared.core.policy.policy import NO_POLICY, Policy
from tests.builders import JOB, POD, TRAINJOB, not_none, shipped_kinds

EVERYTHING = {
    "apiVersion": "ttlafterfinished.dev/v1",
    "kind": "Policy",
    "budget": {
        "global": {"perSecond": 50, "burst": 100},
        "perNamespace": {"perSecond": 10, "burst": 20},
        "breaker": {"count": 1000, "share": "50%", "atLeast": 100, "window": "10m"},
    },
    "recreation": {"times": 3, "window": "1h"},
    "rules": [
        {
            "name": "failed-ci",
            "match": {
                "kinds": ["jobs", "pods", "*"],
                "namespaces": {"names": ["ci-*"], "except": ["ci-prod"], "selector": {"matchLabels": {"team": "ci"}}},
                "labels": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
                "annotations": {"example.com/team": "a*"},
                "owners": [{"kind": "CronJob", "name": "nightly-*"}],
                "age": "7d",
            },
            "when": "object.spec.backoffLimit == 0",
            "ttl": {"succeeded": "1h", "failed": "never"},
            "keepLast": 3,
            "keepLastFailed": 5,
            "keepLastBy": {"cel": "object.metadata.name"},
            "minAge": 600,
            "propagation": "Foreground",
            "onOwned": "delete",
            "jitter": "10m",
        }
    ],
}


def ruled(**rule):
    return {"rules": [{"name": "one", "match": {"kinds": ["jobs"]}, "ttl": "1h"} | rule]}


def test_policy_with_every_field_is_read():
    policy = Policy.model_validate(EVERYTHING)
    rule = policy.rules[0]

    assert policy.budget.breaker.share == 0.5
    assert not_none(policy.budget.global_).per_second == 50
    assert policy.recreation.window == timedelta(hours=1)
    assert rule.match.age == timedelta(days=7)
    assert rule.min_age == timedelta(minutes=10)
    assert rule.ttls[Outcome.SUCCEEDED].after == timedelta(hours=1)
    assert rule.ttls[Outcome.FAILED].is_never
    assert None not in rule.ttls


def test_policy_without_limits_limits_nothing():
    assert NO_POLICY.limits == Limits()
    limits = NO_POLICY.limits
    assert (limits.everywhere, limits.per_namespace, limits.breaker.count) == (None, None, None)
    assert not NO_POLICY.sets_ttl_for(JOB)


@pytest.mark.parametrize(
    ("given", "place", "message"),
    [
        (ruled(ttl="soon"), "rules.0.ttl", "expected never, seconds (3600) or a duration such as 90s"),
        (
            ruled(ttl=-1),
            "rules.0.ttl",
            "expected never, seconds (3600) or a duration such as 90s, 1h30m, 2d, 1w, got '-1'",
        ),
        (ruled(ttl=True), "rules.0.ttl", "got true"),
        (ruled(ttl={"unknown": 1}), "rules.0.ttl", "for each of succeeded and failed"),
        (ruled(ttl=None), "rules.0", "expected a value for ttl, or no such field"),
        (ruled(when=None), "rules.0", "expected a value for when, or no such field"),
        (ruled(keepLast=None, minAge=None), "rules.0", "expected a value for keepLast, minAge, or no such field"),
        (ruled(match={"kinds": ["*"], "namespaces": None}), "rules.0.match", "expected a value for namespaces"),
        (ruled(match={"kinds": ["*"], "labels": None}), "rules.0.match", "expected a value for labels"),
        ({"budget": {"breaker": {"count": None}}}, "budget.breaker", "expected a value for count"),
        ({"budget": {"breaker": {"share": 50.0}}}, "budget.breaker.share", "expected a share such as 50%, got 50.0"),
        ({"budget": {"breaker": {"share": float("nan")}}}, "budget.breaker.share", "expected a share such as 50%"),
        ({"budget": {"global": {"perSecond": 5e-324}}}, "budget.global.perSecond", "greater than or equal to 0.000001"),
        (ruled(when="object.spec +"), "rules.0.when", "CEL"),
        (ruled(when=7), "rules.0.when", "expected a CEL expression, got 7"),
        (ruled(keepLast=0), "rules.0.keepLast", "greater than or equal to 1"),
        (ruled(keepLastBy="owner"), "rules.0", "keepLastBy: expected keepLast or keepLastFailed beside it"),
        *(
            (ruled(keepLastOutcomes="together", **fields), "rules.0", "keepLastOutcomes: expected keepLast, and no")
            for fields in ({}, {"keepLastFailed": 1}, {"keepLast": 1, "keepLastFailed": 1})
        ),
        (ruled(keepLast=1, keepLastOutcomes="one"), "rules.0.keepLastOutcomes", "'apart' or 'together'"),
        (ruled(keepLast=1, keepLastBy="name"), "rules.0.keepLastBy", "got 'name'"),
        (ruled(keepLast=1, keepLastBy={"label": ""}), "rules.0.keepLastBy", "expected owner, namespace"),
        (ruled(maxCount=0), "rules.0.maxCount", "greater than or equal to 1"),
        (ruled(maxCount=-1), "rules.0.maxCount", "greater than or equal to 1"),
        (ruled(maxCount=10**20), "rules.0.maxCount", "less than or equal to 1000000"),
        (ruled(maxCount="many"), "rules.0.maxCount", "valid integer"),
        (ruled(countBy="owner"), "rules.0", "countBy: expected maxCount beside it"),
        (ruled(maxCount=9, countBy="name"), "rules.0.countBy", "got 'name'"),
        (
            ruled(keepLast=3, keepLastFailed=5, maxCount=4),
            "rules.0",
            "expected at least 5, which the rule",
        ),
        *(
            (ruled(whenQuotaAbove=value), "rules.0.whenQuotaAbove", "expected a percentage from 1% to 99%, such as 90%")
            for value in ("90", 90, 0.9, "0%", "-1%", "100%", "120%", "9.5%", "%", True)
        ),
        (ruled(notBefore="10m"), "rules.0", "notBefore: expected whenQuotaAbove beside it"),
        (ruled(whenQuotaAbove="90%", notBefore=-1), "rules.0.notBefore", "got '-1'"),
        (ruled(ttls="1h"), "rules.0.ttls", "not permitted"),
        (ruled(name="a b"), "rules.0.name", "match pattern"),
        (ruled(match={"kinds": []}), "rules.0.match.kinds", "at least 1"),
        (ruled(match={}), "rules.0.match.kinds", "required"),
        (
            ruled(match={"kinds": ["jobs"], "labels": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
            "rules.0.match.labels.matchExpressions.0",
            "expected `values` with In and NotIn",
        ),
        (
            {"rules": [{"name": "a", "match": {"kinds": ["pods"], "age": "1h"}, "pendingDeadline": "1h"}]},
            "rules.0",
            "pendingDeadline: expected no age in match",
        ),
        (
            {"rules": [{"name": "a", "match": {"kinds": ["pods"]}, "pendingDeadline": "0s"}]},
            "rules.0.pendingDeadline",
            "expected never, or a duration of more than 0",
        ),
        (
            {"rules": [{"name": "a", "match": {"kinds": ["pods"]}, "ttl": "1h", "onDeadline": "delete"}]},
            "rules.0",
            "onDeadline: expected an activeDeadline or a pendingDeadline beside it",
        ),
        ({"rules": [{"name": "a", "match": {"kinds": ["jobs"]}}]}, "rules.0", "at least one of ttl, activeDeadline"),
        (
            {"rules": [{"name": "a", "match": {"kinds": ["jobs"]}, "minAge": 1, "jitter": 1}]},
            "rules.0",
            "jitter: expected a ttl, maxCount or whenQuotaAbove beside it",
        ),
        (
            {
                "rules": [
                    {"name": "a", "match": {"kinds": ["jobs"]}, "activeDeadline": "1h", "propagation": "Foreground"}
                ]
            },
            "rules.0",
            "propagation: expected a ttl, maxCount, whenQuotaAbove or onDeadline: delete beside it",
        ),
        ({"rules": [ruled()["rules"][0]] * 2}, "rules", "expected unique names, got 'one' twice"),
        ({"budget": {"breaker": {"share": "200%"}}}, "budget.breaker.share", "up to 100%, got '200%'"),
        ({"budget": {"breaker": {"share": 5}}}, "budget.breaker.share", "expected a share such as 50%, got 5"),
        ({"budget": {"breaker": {"share": -0.5}}}, "budget.breaker.share", "expected a share such as 50%, got -0.5"),
        ({"budget": {"global": {"perSecond": 0}}}, "budget.global.perSecond", "greater than or equal to 0.000001"),
        ({"budget": {"breaker": {"count": 1, "window": "0s"}}}, "budget.breaker.window", "expected at least 1s"),
        ({"recreation": {"window": 0}}, "recreation.window", "expected at least 1s"),
        ({"kind": "Polizei"}, "kind", "'Policy'"),
    ],
)
def test_invalid_policy_is_rejected_with_path_and_reason(given, place, message):
    with pytest.raises(ValidationError) as raised:
        Policy.model_validate(given)

    first = raised.value.errors()[0]
    assert ".".join(map(str, first["loc"])) == place
    assert message in first["msg"]


@pytest.mark.parametrize(
    ("match", "place", "names"),
    [
        ({"namespaces": {}}, "namespaces", "at least one of names, except, selector"),
        ({"namespaces": {"names": []}}, "namespaces", "a value for names"),
        ({"namespaces": {"names": ["ci"], "except": []}}, "namespaces", "a value for except"),
        ({"namespaces": {"selector": {}}}, "namespaces.selector", "at least one of matchLabels, matchExpressions"),
        ({"labels": {}}, "labels", "at least one of matchLabels, matchExpressions"),
        ({"labels": {"matchLabels": {}}}, "labels", "a value for matchLabels"),
        ({"labels": {"matchExpressions": []}}, "labels", "a value for matchExpressions"),
        ({"annotations": {}}, "", "a value for annotations"),
        ({"owners": [{}]}, "owners.0", "at least one of kind, name"),
    ],
)
def test_empty_field_is_rejected(match, place, names):
    with pytest.raises(ValidationError) as raised:
        Policy.model_validate(ruled(match={"kinds": ["jobs"], **match}))

    (error,) = raised.value.errors()
    assert ".".join(map(str, error["loc"])) == f"rules.0.match.{place}".removesuffix(".")
    assert error["msg"] == f"expected {names}, or no such field"


def test_empty_budget_is_rejected():
    with pytest.raises(ValidationError, match="at least one of global, perNamespace, breaker, or no such field"):
        Policy.model_validate({"budget": {}})


def test_owners_and_rules_may_be_empty():
    assert Policy.model_validate({"rules": []}) == NO_POLICY
    assert Policy.model_validate(ruled(match={"kinds": ["*"], "owners": []})).rules[0].match.owners == ()


class TestKinds:
    KNOWN = shipped_kinds()

    @pytest.mark.parametrize(
        ("word", "message"),
        [
            ("jbos", "unknown kind 'jbos'"),
            ("backups", "backups.k8up.io, backups.longhorn.io"),
            ("Backup", "'Backup' is ambiguous"),
            ("cronjobs", "'cronjobs' never finishes"),
            ("nodes*", "expected a pattern that matches a kind that can finish, got 'nodes*'"),
        ],
    )
    def test_name_of_no_kind_or_of_several_is_rejected(self, word, message):
        policy = Policy.model_validate(ruled(match={"kinds": ["jobs", word]}))

        with pytest.raises(ValidationError) as raised:
            policy.of_kinds(self.KNOWN)

        (error,) = raised.value.errors()
        assert (error["loc"], error["input"]) == (("rules", 0, "match", "kinds", 1), word)
        assert message in error["msg"]

    def test_pending_deadline_of_a_kind_that_does_not_show_its_start_is_rejected(self):
        policy = Policy.model_validate(ruled(match={"kinds": ["pods", "jobs", "*runs"]}, pendingDeadline="1h"))

        with pytest.raises(ValidationError) as raised:
            policy.of_kinds(self.KNOWN)

        (error,) = raised.value.errors()
        assert error["loc"] == ("rules", 0, "pendingDeadline")
        expected = "expected kinds whose objects show that they have never started (pods), got jobs.batch"
        assert error["msg"] == expected

    def test_name_means_one_kind_and_opts_in_no_other(self):
        """`backups.k8up.io` must not match Velero's Backups, which are handles to data, nor `jobs` Volcano's."""
        words = ["jobs", "backups.k8up.io", "backups.*"]
        (rule,) = Policy.model_validate(ruled(match={"kinds": words})).of_kinds(self.KNOWN).rules

        assert rule.match.kinds == ("jobs.batch", "backups.k8up.io", "backups.*")
        assert [one.name for one in self.KNOWN.rules if rule.match.names(one)] == ["backups.k8up.io", "jobs.batch"]

    @pytest.mark.parametrize(
        ("word", "kinds"),
        [
            ("jobs", {"Job"}),
            ("Job", {"Job"}),
            ("jobs.batch", {"Job"}),
            ("*", {"Job", "Pod", "TrainJob"}),
            ("*jobs", {"Job", "TrainJob"}),
            ("*.kubeflow.org", {"TrainJob"}),
            ("*.trainer.kubeflow.org", {"TrainJob"}),
            ("p?ds", {"Pod"}),
        ],
    )
    def test_kind_names_and_patterns_match_their_kinds(self, word, kinds):
        policy = Policy.model_validate(ruled(match={"kinds": [word]}))

        assert {rule.kind for rule in (JOB, POD, TRAINJOB) if policy.sets_ttl_for(rule)} == kinds

    def test_rule_without_a_ttl_sets_none_for_any_kind(self):
        policy = Policy.model_validate({"rules": [{"name": "a", "match": {"kinds": ["jobs"]}, "minAge": 1}]})

        assert not policy.sets_ttl_for(JOB)
        assert len(policy.candidates(JOB)) == 1
