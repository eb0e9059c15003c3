"""Limits by count and by quota: which finished objects go before their time."""

from dataclasses import replace

import pytest

from shared.core.decision.capacity import Counted, QuotaPressure, QuotaUsage
from shared.core.decision.namespaces import namespace_of
from tests.builders import JOB, ago, annotated, created, having, job, later, namespace, owned_by
from tests.unit.core.decision.test_decide import expire, ignore, wait
from tests.unit.core.ttl.test_precedence import DONE, decided, facts, rules


class TestMaxCount:
    POLICY = rules(maxCount=5)
    WITHIN, BEYOND = Counted(4, 9), Counted(5, 9, ago(20))

    def test_oldest_objects_beyond_the_limit_are_due_at_once(self):
        assert decided(DONE, self.POLICY, counted=self.BEYOND) == ("expire", ago(100), "over-count")
        assert decided(DONE, self.POLICY, counted=self.WITHIN) == ignore("no-ttl")

    def test_unknown_count_deletes_nothing(self):
        assert decided(DONE, self.POLICY) == ignore("no-ttl")
        assert facts(DONE, self.POLICY).unread == ("place",)
        assert decided(annotated(DONE, ttl="1h"), self.POLICY) == wait(later(3_500))

    @pytest.mark.parametrize(
        ("obj", "expected"),
        [
            (annotated(DONE, ttl="1h"), ("expire", ago(100), "over-count")),
            (annotated(DONE, expire_at=later(99)), ("expire", ago(100), "over-count")),
            (annotated(DONE, ttl="0s"), expire(ago(100))),
            (annotated(DONE, ttl="never"), ignore("never")),
            (annotated(DONE, ttl="soon"), ignore("invalid-ttl")),
            (annotated(DONE, hold="why"), ignore("held")),
            (job(), ignore("unfinished")),
            (having(DONE, "metadata.deletionTimestamp", "2026-03-14T15:00:00Z"), ignore("terminating")),
            (job(conditions=[{"type": "Complete", "status": "True"}]), ignore("no-ttl")),
        ],
    )
    def test_object_beyond_the_limit_goes_unless_it_says_otherwise(self, obj, expected):
        assert decided(obj, self.POLICY, counted=self.BEYOND) == expected

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"minAge": "1h"}, wait(later(3_500))),
            ({"minAge": "10s"}, ("expire", ago(90), "over-count")),
            ({"ttl": "never"}, ignore("never")),
            ({"keepLast": 3}, ignore("kept-last")),
            ({"ttl": "1h", "keepLast": 3}, ignore("kept-last")),
            ({"when": "outcome == 'failed'"}, ignore("no-ttl")),
            ({"countBy": {"cel": "object.metadata.labels.app"}}, ignore("invalid-policy")),
        ],
    )
    def test_policy_keeps_an_object_beyond_the_limit(self, settings, expected):
        assert decided(DONE, rules(maxCount=5, **settings), counted=self.BEYOND, newer=2) == expected

    def test_never_of_a_rule_keeps_an_object_while_that_rule_is_in_force(self):
        policy = rules({"match": {"age": "1h"}, "ttl": "0s"}, {"ttl": "never"}, {"maxCount": 5})
        young, old = (created(DONE, ago(seconds)) for seconds in (200, 4_000))

        assert decided(young, policy, counted=self.BEYOND) == wait(later(3_400))
        assert decided(old, policy, counted=self.BEYOND)[0] == "expire"

    @pytest.mark.parametrize(
        ("fields", "reason"), [({"exempt": "true"}, "exempt"), ({"max_ttl": "long"}, "invalid-policy")]
    )
    def test_namespace_keeps_an_object_beyond_the_limit(self, fields, reason):
        place = namespace_of(namespace(**fields))

        assert decided(DONE, self.POLICY, counted=self.BEYOND, place=place) == ignore(reason)

    def test_unread_namespace_keeps_an_object_beyond_the_limit(self):
        assert decided(DONE, self.POLICY, counted=self.BEYOND, place=None) == ignore("namespace-unread")

    def test_unfinished_owner_keeps_an_object_beyond_the_limit_as_for_a_ttl_of_a_policy(self):
        owned, known = owned_by(DONE, "CronJob"), {"counted": self.BEYOND, "owner_unfinished": True}

        assert decided(owned, self.POLICY, **known) == ignore("owner-unfinished")
        assert decided(owned, rules(maxCount=5, onOwned="delete"), **known)[0] == "expire"
        # the limit delays no TTL of the object itself
        assert decided(annotated(owned, ttl="1h"), self.POLICY, **known) == wait(later(3_500))
        assert decided(annotated(owned, ttl="10s"), self.POLICY, **known) == expire(ago(90))

    def test_opt_in_kind_is_limited_only_by_its_name(self):
        opt_in = JOB.model_copy(update={"opt_in": "it is a handle to data"})

        assert decided(DONE, rules(match={"kinds": ["*"]}, maxCount=5), opt_in, counted=self.BEYOND) == ignore("no-ttl")
        assert decided(DONE, self.POLICY, opt_in, counted=self.BEYOND)[0] == "expire"

    def test_first_rule_with_a_limit_counts(self):
        policy = rules({"maxCount": 9}, {"maxCount": 5})

        assert decided(DONE, policy, counted=self.BEYOND) == ignore("no-ttl")
        assert facts(DONE, policy).count_rule.name == "rule-0"

    def test_deletion_has_the_settings_of_the_rule_with_the_limit(self):
        policy = rules({"maxCount": 5, "propagation": "Foreground"}, {"ttl": "1h"})

        assert facts(DONE, policy, counted=self.BEYOND).policy_rule.name == "rule-0"
        assert facts(DONE, policy, counted=self.WITHIN).policy_rule.name == "rule-1"


class TestQuota:
    POLICY = rules(ttl="1h", whenQuotaAbove="90%", notBefore="1m")
    USAGE = QuotaUsage("objects", "count/jobs.batch", hard=50, used=47)

    def pressed(self, older, **usage):
        return QuotaPressure((replace(self.USAGE, **usage),), older=older, live=47)

    @pytest.mark.parametrize(
        ("older", "usage", "expected"),
        [
            (0, {}, ("expire", ago(40), "over-quota")),
            (1, {}, ("expire", ago(40), "over-quota")),
            (2, {}, wait(later(3_500))),
            (None, {}, wait(later(3_500))),
            (0, {"used": 45}, wait(later(3_500))),
            (0, {"used": 99}, ("expire", ago(40), "over-quota")),
            (2, {"used": 99}, wait(later(3_500))),  # the LIST shows 47
        ],
    )
    def test_oldest_objects_go_until_the_usage_is_not_above(self, older, usage, expected):
        assert decided(DONE, self.POLICY, pressure=self.pressed(older, **usage)) == expected

    @pytest.mark.parametrize(
        ("obj", "settings", "expected"),
        [
            (DONE, {"ttl": "1h"}, wait(later(500))),  # notBefore is 10m
            (DONE, {"ttl": "1h", "notBefore": "0s"}, ("expire", ago(100), "over-quota")),
            (DONE, {"ttl": "1h", "notBefore": "0s", "minAge": "5m"}, wait(later(200))),
            (DONE, {"ttl": "30s"}, expire(ago(70))),
            (DONE, {}, ignore("no-ttl")),
            (DONE, {"ttl": "never", "notBefore": "0s"}, ignore("never")),
            (DONE, {"ttl": "1h", "notBefore": "0s", "keepLast": 3}, ignore("kept-last")),
            (annotated(DONE, ttl="1h"), {"notBefore": "0s"}, ("expire", ago(100), "over-quota")),
            (annotated(DONE, ttl="1h", hold="why"), {"notBefore": "0s"}, ignore("held")),
            (job(ttl=3_600), {"notBefore": "0s"}, ignore("unfinished")),
        ],
    )
    def test_quota_shortens_a_ttl_as_far_as_the_rule_allows(self, obj, settings, expected):
        policy = rules(whenQuotaAbove="90%", **settings)

        assert decided(obj, policy, pressure=self.pressed(0), newer=1) == expected

    def test_unknown_quota_deletes_nothing_early(self):
        assert decided(DONE, self.POLICY) == wait(later(3_500))
        assert facts(DONE, self.POLICY).unread == ("quotas",)

    def test_exempt_namespace_keeps_an_object_of_a_full_quota(self):
        place = namespace_of(namespace(exempt="true"))

        assert decided(DONE, self.POLICY, pressure=self.pressed(0), place=place) == ignore("exempt")


class TestBothLimits:
    """maxCount of one rule and whenQuotaAbove of another, on an object with a controller owner."""

    OWNED = owned_by(DONE, "CronJob")
    BEYOND, WITHIN = Counted(5, 9, ago(20)), Counted(4, 9)
    FULL = QuotaPressure((QuotaUsage("objects", "count/jobs.batch", hard=50, used=50),), older=0, live=50)
    ROOM = QuotaPressure((QuotaUsage("objects", "count/jobs.batch", hard=50, used=9),), older=0, live=9)
    DELETED, KEPT = ("expire", ago(40), "over-quota"), wait(later(3_500))

    def policy(self, count=None, quota=None):
        ttl = {"ttl": "1h", "whenQuotaAbove": "90%", "notBefore": "1m", "onOwned": "delete"}
        return rules({"maxCount": 5, **(count or {})}, ttl | (quota or {}))

    @pytest.mark.parametrize(
        ("known", "expected", "unread"),
        [
            ({}, KEPT, ("place", "quotas")),
            ({"counted": WITHIN}, KEPT, ("quotas",)),
            ({"counted": WITHIN, "pressure": ROOM}, KEPT, ()),
            ({"counted": BEYOND}, KEPT, ("owner", "quotas")),
            ({"counted": BEYOND, "owner_unfinished": True}, KEPT, ("quotas",)),
            ({"counted": BEYOND, "pressure": ROOM}, KEPT, ("owner",)),
            ({"counted": BEYOND, "pressure": ROOM, "owner_unfinished": True}, KEPT, ()),
            ({"counted": BEYOND, "pressure": FULL}, DELETED, ()),
            ({"counted": WITHIN, "pressure": FULL}, DELETED, ()),
            ({"pressure": FULL}, DELETED, ()),
            ({"counted": BEYOND, "owner_unfinished": False}, ("expire", ago(100), "over-count"), ()),
        ],
    )
    def test_owner_that_keeps_an_object_from_one_limit_does_not_keep_it_from_the_other(self, known, expected, unread):
        known = {"owner_unfinished": None} | known

        assert decided(self.OWNED, self.policy(), **known) == expected
        assert facts(self.OWNED, self.policy(), **known).unread == unread

    def test_owner_may_keep_an_object_from_both_limits(self):
        policy = rules({"maxCount": 5}, {"whenQuotaAbove": "90%", "notBefore": "1m"})
        known = {"counted": self.BEYOND, "pressure": self.FULL, "owner_unfinished": True}
        owned = annotated(self.OWNED, ttl="1h")

        assert decided(owned, policy, **known) == self.KEPT
        assert facts(owned, policy, **known).unread == ()
        assert facts(owned, policy, **known | {"owner_unfinished": None}).unread == ("owner",)

    def test_limit_that_only_reports_is_no_obstacle_to_the_other(self):
        known = {"counted": self.BEYOND, "pressure": self.FULL, "owner_unfinished": True}
        reporting = self.policy(quota={"audit": True})

        assert decided(self.OWNED, reporting, **known) == ignore("audit-only")
        assert facts(self.OWNED, reporting, **known).unread == ()
        assert facts(self.OWNED, reporting, **known | {"owner_unfinished": None}).unread == ("owner",)
        deleted = known | {"owner_unfinished": False}
        assert decided(self.OWNED, reporting, **deleted) == ("expire", ago(100), "over-count")


class TestNeverFromAnAge:
    """A rule whose `never` begins with an age does not keep an object that a limit made due before."""

    POLICY = rules({"match": {"age": "1h"}, "ttl": "never"}, {"maxCount": 5})
    BEYOND = Counted(5, 9, ago(20))

    @pytest.mark.parametrize(("age", "expected"), [(200, ("expire", ago(100), "over-count")), (4_000, ignore("never"))])
    def test_limit_takes_effect_before_the_age(self, age, expected):
        assert decided(created(DONE, ago(age)), self.POLICY, counted=self.BEYOND) == expected

    def test_place_in_the_group_is_asked_for(self):
        assert facts(created(DONE, ago(200)), self.POLICY).unread == ("place",)
        assert facts(DONE, rules({"ttl": "never"}, {"maxCount": 5})).unread == ()

    def test_quota_keeps_to_objects_that_are_due_some_time(self):
        policy = rules({"match": {"age": "1h"}, "ttl": "never"}, {"whenQuotaAbove": "90%", "notBefore": "1m"})
        full = QuotaPressure((QuotaUsage("objects", "count/jobs.batch", hard=50, used=50),), older=0, live=50)

        assert decided(created(DONE, ago(200)), policy, pressure=full) == ignore("never")
