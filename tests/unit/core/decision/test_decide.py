"""The specification of decisions about objects.

The first tables are the cases of Kubernetes' own TTL controller for Jobs, each with its name there, and the cases that
its source implies. Then follow Pods, which record their end in many places, and the settings of an object in the order
of their precedence.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.core.decision.decide import Context, Decision, Expire, Ignore, Reason, Wait, decide, may_expire
from shared.core.decision.namespaces import plain_namespace
from shared.core.kinds.rule import KindRule, Outcome
from tests.builders import (
    FIXTURES,
    JOB,
    LONG_AGO,
    NOW,
    POD,
    TRAINJOB,
    ago,
    annotated,
    condition,
    created,
    ended,
    fixture,
    having,
    job,
    later,
    not_none,
    owned_by,
    pod,
    rule_of,
    running,
    status_written,
    trainjob,
    waiting,
    without,
)

HOME = plain_namespace("ci")
AT_HOME = Context(namespace=HOME)


def verdict(decision: Decision) -> tuple:
    """A decision without its facts, as a tuple that is easy to read in a table."""
    match decision:
        case Ignore(reason):
            return ("ignore", reason)
        case Wait(until, reason):
            return ("wait", until, reason)
        case Expire(since, reason):
            return ("expire", since, reason)


def wait(until: datetime) -> tuple:
    return ("wait", until, "not-due")


def expire(since: datetime) -> tuple:
    return ("expire", since, "expired")


def ignore(reason: str) -> tuple:
    return ("ignore", reason)


def decided(obj: object, rule: KindRule, *, now: datetime = NOW, owner_unfinished: bool | None = False) -> tuple:
    return verdict(decide(obj, rule, now, Context(namespace=HOME, owner_unfinished=owner_unfinished)))


class TestJobsAsKubernetesDecides:
    """The table of kube-controller-manager's own test: Complete or Failed, the TTL, the remaining time."""

    @pytest.mark.parametrize(
        ("obj", "expected"),
        [
            pytest.param(job(ttl=100), ignore("unfinished"), id="Job unfinished"),
            pytest.param(job(complete=NOW), ignore("no-ttl"), id="Job completed now, no TTL"),
            pytest.param(job(complete=NOW, ttl=0), expire(NOW), id="Job completed now, 0s TTL"),
            pytest.param(job(complete=NOW, ttl=10), wait(later(10)), id="Job completed now, 10s TTL"),
            pytest.param(job(complete=ago(10), ttl=15), wait(later(5)), id="Job completed 10s ago, 15s TTL"),
            pytest.param(job(failed=NOW), ignore("no-ttl"), id="Job failed now, no TTL"),
            pytest.param(job(failed=NOW, ttl=0), expire(NOW), id="Job failed now, 0s TTL"),
            pytest.param(job(failed=NOW, ttl=10), wait(later(10)), id="Job failed now, 10s TTL"),
            pytest.param(job(failed=ago(10), ttl=15), wait(later(5)), id="Job failed 10s ago, 15s TTL"),
        ],
    )
    def test_job_decides_the_nine_upstream_cases(self, obj, expected):
        assert decided(obj, JOB) == expected

    @pytest.mark.parametrize("status", ["False", "Unknown", "true", "", None, True, 1])
    @pytest.mark.parametrize("kind", ["Complete", "Failed"])
    def test_condition_that_is_not_true_does_not_finish_an_object(self, kind, status):
        obj = job(conditions=[condition(kind, ago(60), status=status)], ttl=0)

        assert decided(obj, JOB) == ignore("unfinished")

    @pytest.mark.parametrize("kind", ["FailureTarget", "SuccessCriteriaMet", "Suspended"])
    def test_interim_condition_does_not_finish_an_object(self, kind):
        obj = job(conditions=[condition(kind, ago(3600))], ttl=0)

        assert decided(obj, JOB) == ignore("unfinished")

    @pytest.mark.parametrize(
        ("conditions", "finished_at"),
        [
            pytest.param(
                [condition("FailureTarget", ago(90)), condition("Failed", ago(60))],
                ago(60),
                id="the end counts, not the decision to fail",
            ),
            pytest.param(
                [condition("Failed", ago(60)), condition("FailureTarget", ago(90))],
                ago(60),
                id="in any order",
            ),
            pytest.param(
                [condition("SuccessCriteriaMet", ago(61)), condition("Complete", ago(60))],
                ago(60),
                id="the end counts, not the decision to succeed",
            ),
            pytest.param(
                [condition("Complete", ago(60)), condition("Suspended", ago(30), status="False")],
                ago(60),
                id="a condition listed last is not the state",
            ),
            pytest.param(
                [condition("Complete", ago(90), status="False"), condition("Failed", ago(60))],
                ago(60),
                id="a condition that is not true is passed over",
            ),
            pytest.param(
                [condition("Failed", ago(60)), condition("Complete", ago(90))],
                ago(60),
                id="of two ends the one listed first counts",
            ),
        ],
    )
    def test_job_finish_time_is_that_of_the_finishing_condition(self, conditions, finished_at):
        assert decided(job(conditions=conditions, ttl=10), JOB) == expire(finished_at + timedelta(seconds=10))

    def test_completion_time_is_not_the_finish_time(self):
        obj = having(job(complete=ago(10), ttl=10), "status.completionTime", "2026-03-14T15:09:15Z")

        assert decided(obj, JOB) == expire(NOW)

    @pytest.mark.parametrize("at", [None, "", "yesterday", "0001-01-01T00:00:00Z", "2026-03-14", 1773500966, {}, []])
    def test_job_without_a_condition_time_is_kept(self, at):
        end = {**condition("Complete"), "lastTransitionTime": at}

        assert decided(job(conditions=[end], ttl=0), JOB) == ignore("finish-time-unknown")

    def test_job_without_a_condition_time_is_kept_with_any_other_times(self):
        obj = status_written(job(conditions=[condition("Complete")], ttl=0), ago(60))

        assert decided(having(obj, "status.completionTime", "2026-03-14T00:00:00Z"), JOB) == ignore(
            "finish-time-unknown"
        )

    def test_finish_in_the_future_delays_the_due_time_by_the_skew(self):
        assert decided(job(complete=later(60), ttl=10), JOB) == wait(later(70))

    @pytest.mark.parametrize("obj", [job(complete=ago(60), ttl=0), job(ttl=0), job(complete=ago(60), hold="why")])
    def test_terminating_object_is_ignored(self, obj):
        assert decided(having(obj, "metadata.deletionTimestamp", "2026-03-14T15:00:00Z"), JOB) == ignore("terminating")

    @pytest.mark.parametrize(
        ("now", "expected"),
        [
            pytest.param(later(5) - timedelta(microseconds=1), wait(later(5)), id="a microsecond before due"),
            pytest.param(later(5), expire(later(5)), id="exactly due"),
            pytest.param(later(5) + timedelta(microseconds=1), expire(later(5)), id="a microsecond after due"),
            pytest.param(later(10**9), expire(later(5)), id="decades after due"),
        ],
    )
    def test_object_due_exactly_now_is_expired(self, now, expected):
        assert decided(job(complete=ago(10), ttl=15), JOB, now=now) == expected

    def test_raised_ttl_waits_and_removed_ttl_keeps(self):
        obj = job(complete=ago(10), ttl=10)

        assert decided(obj, JOB) == expire(NOW)
        assert decided(having(obj, "spec.ttlSecondsAfterFinished", 20), JOB) == wait(later(10))
        assert decided(without(obj, "spec.ttlSecondsAfterFinished"), JOB) == ignore("no-ttl")
        assert decided(having(obj, "spec.ttlSecondsAfterFinished", None), JOB) == ignore("no-ttl")

    def test_recreated_job_is_unfinished(self):
        assert decided(job(ttl=10, uid="another"), JOB) == ignore("unfinished")

    @pytest.mark.parametrize("owner_unfinished", [True, False])
    @pytest.mark.parametrize("kind", ["CronJob", "JobSet"])
    def test_unfinished_owner_does_not_keep_a_job(self, kind, owner_unfinished):
        obj = owned_by(job(complete=ago(10), ttl=10), kind)

        assert decided(obj, JOB, owner_unfinished=owner_unfinished) == expire(NOW)

    def test_job_with_managed_by_finishes_by_its_conditions(self):
        obj = having(job(complete=ago(10), ttl=10), "spec.managedBy", "kueue.x-k8s.io/multikueue")

        assert decided(obj, JOB) == expire(NOW)


class TestTrainJobs:
    def test_trainjob_finish_time_is_that_of_the_finishing_condition(self):
        assert decided(trainjob(complete=ago(3600), ttl="1h"), TRAINJOB) == expire(NOW)

    def test_trainjob_without_a_ttl_waits_for_its_runtime_to_be_read(self):
        assert decided(trainjob(complete=ago(3600)), TRAINJOB) == ignore("inherited-unread")
        assert decided(without(trainjob(complete=ago(3600)), "spec.runtimeRef"), TRAINJOB) == ignore("no-ttl")

    def test_trainjob_without_a_condition_time_uses_the_newest_status_write(self):
        obj = status_written(trainjob(conditions=[condition("Failed")], ttl="10s"), ago(30), ago(10), ago(20))

        assert decided(obj, TRAINJOB) == expire(NOW)

    def test_suspended_trainjob_is_unfinished(self):
        assert decided(trainjob(conditions=[condition("Suspended", ago(9999))], ttl="0"), TRAINJOB) == ignore(
            "unfinished"
        )


# Lists of conditions or of container statuses that are none.
WITHOUT_A_TIME: dict[str, Any] = {
    "null": None,
    "empty": [],
    "an empty map": {},
    "a map": {"Ready": {"status": "False", "lastTransitionTime": "2026-03-14T15:00:00Z"}},
    "text": "2026-03-14T15:00:00Z",
    "a list of anything": [None, 7, "Ready", [], {}, {"name": "main", "type": "Ready"}],
}


class TestPods:
    @pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", "", "succeeded", None])
    def test_pod_in_another_phase_than_succeeded_or_failed_is_unfinished(self, phase):
        assert decided(pod(phase, containers=[ended(at=ago(60))], ttl="0"), POD) == ignore("unfinished")

    @pytest.mark.parametrize("phase", [3, True, [], {}])
    def test_pod_phase_that_is_no_text_is_an_unknown_shape(self, phase):
        assert decided(pod(phase, containers=[ended(at=ago(60))], ttl="0"), POD) == ignore("unknown-shape")

    # Every Pod here is Failed and has a TTL of zero: it is due when it finished.
    @pytest.mark.parametrize(
        ("status", "finished_at"),
        [
            pytest.param({"containers": [ended(at=ago(60))]}, ago(60), id="its only container ended"),
            pytest.param(
                {"containers": [ended("a", ago(60)), ended("b", ago(30)), ended("c", ago(90))]},
                ago(30),
                id="the last container that ended counts, wherever it is listed",
            ),
            pytest.param(
                {"containers": [ended(at=ago(60))], "conditions": [condition("Ready", ago(59), status="False")]},
                ago(60),
                id="if all containers have an end, conditions do not count",
            ),
            pytest.param(
                {"containers": [ended(at=ago(60))], "init_containers": [ended("proxy", ago(30))]},
                ago(30),
                id="a sidecar that ended after the main container makes it later",
            ),
            pytest.param(
                {"containers": [ended(at=ago(60))], "init_containers": [ended("init", ago(90))]},
                ago(60),
                id="an init container that ended before does not",
            ),
            pytest.param(
                {"containers": [ended(at=ago(60))], "ephemeral_containers": [ended("debug", ago(45))]},
                ago(45),
                id="an ephemeral container makes it later",
            ),
            pytest.param(
                {"containers": [ended(at=ago(60)) | {"lastState": ended(at=ago(300))["state"]}]},
                ago(60),
                id="a restarted container ended when its last run did",
            ),
        ],
    )
    def test_pod_finish_time_is_the_newest_end_if_every_container_ended(self, status, finished_at):
        assert decided(pod("Failed", **status, ttl="0"), POD) == expire(finished_at)

    @pytest.mark.parametrize(
        "containers",
        [
            pytest.param([ended("a", ago(600)), ended("b", None)], id="the end of one was never seen"),
            pytest.param([ended("a", ago(600)), running("b")], id="one still reads as running"),
            pytest.param([ended("a", ago(600)), waiting("b")], id="one still waits"),
            pytest.param([ended("a", ago(600)), ended("b", "0001-01-01T00:00:00Z")], id="one ended in the year 1"),
            pytest.param([ended("a", ago(600)), ended("b", LONG_AGO - timedelta(1))], id="one ended before creation"),
            pytest.param([ended("a", ago(600)), ended("b", "soon")], id="the end of one is no time"),
            pytest.param([ended("a", ago(600)), {"name": "b", "state": None}], id="one has no state"),
            pytest.param([ended("a", ago(600)), {"name": "b", "state": {}}], id="one has an empty state"),
            pytest.param([ended("a", ago(600)), ended("a", None)], id="one of two of the same name"),
            pytest.param([ended("a", ago(600))], id="one is missing in the statuses"),
        ],
    )
    def test_pod_with_a_container_without_an_end_does_not_use_the_other_ends(self, containers):
        ready = condition("Ready", ago(60), status="False")

        assert decided(pod("Failed", containers=containers, conditions=[ready], declared=("a", "b"), ttl="0"), POD) == (
            expire(ago(60))
        )

    def test_end_of_an_undeclared_container_counts_for_the_finish_time(self):
        obj = pod("Failed", containers=[ended("a", ago(600)), running("b")], declared=("a",), ttl="0")

        assert decided(status_written(obj, ago(60)), POD) == expire(ago(60))

    @pytest.mark.parametrize(
        ("status", "finished_at"),
        [
            pytest.param(
                {"containers": [ended(at=None)], "conditions": [condition("Ready", ago(60), status="False")]},
                ago(60),
                id="lost container: Ready turned false",
            ),
            pytest.param(
                {"containers": None, "conditions": [condition("DisruptionTarget", ago(60))]},
                ago(60),
                id="evicted without containers: the disruption",
            ),
            pytest.param(
                {
                    "containers": [running()],
                    "conditions": [
                        condition("Ready", ago(300), status="False"),
                        condition("DisruptionTarget", ago(60)),
                    ],
                },
                ago(60),
                id="orphan of a lost node: the disruption, not the last heartbeat",
            ),
            pytest.param(
                {
                    "containers": [waiting()],
                    "init_containers": [ended("init", ago(60), exit_code=1)],
                    "conditions": [condition("Ready", LONG_AGO, status="False")],
                },
                ago(60),
                id="failed init container: its end, not Ready=False since the start",
            ),
            pytest.param(
                {
                    "containers": [ended("a", ago(60)), ended("b", None)],
                    "conditions": [condition("Ready", LONG_AGO, status="False")],
                },
                ago(60),
                id="never Ready: a container that ended, not Ready=False since the start",
            ),
            pytest.param(
                {
                    "containers": [ended("a", ago(300)), ended("b", None)],
                    "conditions": [condition("Ready", ago(120), status="False"), condition("Whatever", ago(60))],
                },
                ago(60),
                id="the latest of all of them, for any condition",
            ),
        ],
    )
    def test_pod_finish_time_is_otherwise_the_latest_of_containers_and_conditions(self, status, finished_at):
        assert decided(pod("Failed", **status, ttl="0"), POD) == expire(finished_at)

    def test_pod_that_was_never_ready_does_not_finish_at_its_start(self):
        since_start = [condition("Ready", LONG_AGO, status="False"), condition("Initialized", LONG_AGO)]
        obj = pod("Failed", containers=[ended(at=None)], conditions=since_start, ttl="1h")

        assert decided(status_written(obj, ago(60)), POD) == wait(later(3540))

    @pytest.mark.parametrize("conditions", WITHOUT_A_TIME.values(), ids=WITHOUT_A_TIME)
    @pytest.mark.parametrize("containers", WITHOUT_A_TIME.values(), ids=WITHOUT_A_TIME)
    def test_pod_without_container_and_condition_times_uses_the_newest_status_write(self, containers, conditions):
        obj = pod("Failed", containers=containers, conditions=conditions, declared=("main",), ttl="0")

        assert decided(status_written(obj, ago(120), None, "later", ago(60)), POD) == expire(ago(60))
        assert decided(obj, POD) == ignore("finish-time-unknown")

    def test_write_of_another_field_than_the_status_sets_no_finish_time(self):
        obj = status_written(pod("Failed", containers=None, conditions=None, ttl="0"), ago(60))
        for subresource in (None, "", "scale", "ephemeralcontainers"):
            obj["metadata"]["managedFields"][0]["subresource"] = subresource
            assert decided(obj, POD) == ignore("finish-time-unknown")

    def test_pod_creation_and_start_are_never_its_finish_time(self):
        obj = pod("Failed", containers=None, conditions=None, started=ago(600), ttl="0")

        assert decided(obj, POD) == ignore("finish-time-unknown")

    @pytest.mark.parametrize(
        "begun",
        [
            pytest.param(lambda obj: created(obj, ago(90)), id="its creation"),
            pytest.param(lambda obj: having(obj, "status.startTime", "2026-03-14T15:07:56Z"), id="its start"),
        ],
    )
    def test_instant_before_the_start_counts_as_absent(self, begun):
        early = pod("Succeeded", containers=[ended(at=ago(91))], ttl="0")
        at_once = pod("Succeeded", containers=[ended(at=ago(90))], ttl="0")

        assert decided(begun(early), POD) == ignore("finish-time-unknown")
        assert decided(begun(status_written(early, ago(60))), POD) == expire(ago(60))
        assert decided(begun(at_once), POD) == expire(ago(90))

    @pytest.mark.parametrize("creation", [None, "", "0001-01-01T00:00:00Z", "long ago"])
    @pytest.mark.parametrize("zero", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"])
    def test_zero_time_is_absent_if_the_creation_is_unknown(self, zero, creation):
        obj = created(pod("Failed", containers=[ended(at=zero)], started=None, ttl="0"), creation)

        assert decided(obj, POD) == ignore("finish-time-unknown")

    @pytest.mark.parametrize("subject", ["whole Pod", "Pod with its end in conditions only"])
    def test_pod_has_no_native_ttl(self, subject):
        containers = [ended(at=ago(60))] if subject == "whole Pod" else None
        obj = pod("Failed", containers=containers, conditions=[condition("Ready", ago(60))])

        assert decided(having(obj, "spec.ttlSecondsAfterFinished", 0), POD) == ignore("no-ttl")


class TestOwners:
    @pytest.fixture
    def owned(self):
        return owned_by(pod(containers=[ended(at=ago(60))], ttl="0"), "Job")

    def test_unfinished_or_unread_controller_keeps_a_pod(self, owned):
        assert decided(owned, POD, owner_unfinished=True) == ignore("owner-unfinished")
        assert decided(owned, POD, owner_unfinished=None) == ignore("owner-unread")

    def test_finished_controller_does_not_keep_a_pod(self, owned):
        assert decided(owned, POD, owner_unfinished=False) == expire(ago(60))

    def test_owner_annotation_ignore_deletes_a_pod_of_an_unfinished_owner(self, owned):
        assert decided(annotated(owned, owner="ignore"), POD, owner_unfinished=True) == expire(ago(60))

    @pytest.mark.parametrize("word", ["", "Ignore", "ignored", "keep", "true", None, True])
    def test_owner_annotation_with_another_value_keeps_a_pod(self, owned, word):
        assert decided(annotated(owned, owner=word), POD, owner_unfinished=True) == ignore("owner-unfinished")

    def test_unfinished_owner_keeps_a_pod_before_it_is_due(self, owned):
        assert decided(annotated(owned, ttl="1h"), POD, owner_unfinished=True) == ignore("owner-unfinished")

    def test_kind_rule_sets_whether_an_unfinished_owner_keeps_an_object(self, owned):
        free = POD.model_copy(update={"while_owner_unfinished": "delete"})

        assert decided(owned, free, owner_unfinished=True) == expire(ago(60))


class TestHolds:
    @pytest.mark.parametrize("why", ["audit 4711", "", None, 0, False, []])
    def test_hold_with_any_value_keeps_the_object(self, why):
        assert decided(job(complete=ago(60), ttl=0, hold=why), JOB) == ignore("held")

    def test_hold_of_another_domain_does_not_keep_the_object(self):
        obj = having(job(complete=ago(60), ttl=0), "metadata.annotations", {"example.com/hold": "x", "hold": "x"})

        assert decided(obj, JOB) == expire(ago(60))

    def test_hold_takes_precedence_over_an_invalid_ttl_but_not_over_an_unknown_shape(self):
        assert decided(job(hold="x", ttl="soon"), JOB) == ignore("held")
        assert decided(having(job(hold="x"), "status", "gone"), JOB) == ignore("unknown-shape")


SUCCEEDED = job(complete=ago(60))
FAILED = job(failed=ago(60))

# Names are annotations; `field` is the Job's own ttlSecondsAfterFinished. Every object finished a minute ago.
TTL_SOURCES = {
    "the field alone": (SUCCEEDED, {"field": 90}, wait(later(30))),
    "ttl before the field": (SUCCEEDED, {"field": 0, "ttl": "90s"}, wait(later(30))),
    "a shorter ttl before the field": (SUCCEEDED, {"field": 900, "ttl": "30"}, expire(ago(30))),
    "ttl-succeeded before ttl": (SUCCEEDED, {"ttl": "0", "ttl_succeeded": "70s"}, wait(later(10))),
    "ttl-failed before ttl": (FAILED, {"ttl": "0", "ttl_failed": "70s"}, wait(later(10))),
    "ttl-failed says nothing to what succeeded": (SUCCEEDED, {"ttl": "70", "ttl_failed": "0"}, wait(later(10))),
    "ttl-succeeded says nothing to what failed": (FAILED, {"ttl": "70", "ttl_succeeded": "0"}, wait(later(10))),
    "the other outcome's ttl leaves the field": (FAILED, {"field": 70, "ttl_succeeded": "0"}, wait(later(10))),
    "the other outcome's ttl alone": (FAILED, {"ttl_succeeded": "0"}, ignore("no-ttl")),
    "expire-at before all others": (
        SUCCEEDED,
        {"field": 0, "ttl": "0", "ttl_succeeded": "0", "expire_at": later(30)},
        wait(later(30)),
    ),
    "expire-at before never": (SUCCEEDED, {"ttl": "never", "expire_at": ago(30)}, expire(ago(30))),
    "expire-at before the finish: due at the finish": (SUCCEEDED, {"expire_at": ago(3600)}, expire(ago(60))),
    "expire-at in another zone": (SUCCEEDED, {"expire_at": "2026-03-14T16:09:26+01:00"}, expire(NOW)),
    "never before the field": (SUCCEEDED, {"field": 0, "ttl": "never"}, ignore("never")),
    "never for what failed": (FAILED, {"ttl": "0", "ttl_failed": "never"}, ignore("never")),
    "never for what failed leaves what succeeded": (SUCCEEDED, {"ttl": "0", "ttl_failed": "never"}, expire(ago(60))),
    "a ttl for what never lasts otherwise": (FAILED, {"ttl": "never", "ttl_failed": "70s"}, wait(later(10))),
    "a century": (SUCCEEDED, {"ttl": "36500d"}, wait(ago(60) + timedelta(days=36_500))),
    "an empty annotation map": (SUCCEEDED, {}, ignore("no-ttl")),
}


class TestTtls:
    @pytest.mark.parametrize(("obj", "settings", "expected"), TTL_SOURCES.values(), ids=TTL_SOURCES)
    def test_first_ttl_source_takes_precedence(self, obj, settings, expected):
        annotations = {name: value for name, value in settings.items() if name != "field"}
        obj = having(obj, "spec.ttlSecondsAfterFinished", settings.get("field"))

        assert decided(annotated(obj, **annotations), JOB) == expected

    def test_unknown_outcome_uses_the_plain_ttl(self):
        finished = not_none(JOB.finished).model_copy(update={"conditions": {"Complete": Outcome.UNKNOWN}})
        rule = JOB.model_copy(update={"finished": finished})
        obj = job(complete=ago(60), ttl_succeeded="0", ttl_failed="0", ttl_unknown="0", ttl_None="0")

        assert decided(obj, rule) == ignore("no-ttl")
        assert decided(annotated(obj, ttl="60s"), rule) == expire(NOW)

    def test_expire_at_needs_no_finish_time(self):
        obj = job(conditions=[condition("Complete")], expire_at=ago(60))

        assert decided(obj, JOB) == expire(ago(60))
        assert decided(annotated(obj, expire_at=later(60)), JOB) == wait(later(60))

    def test_expire_at_does_not_delete_an_unfinished_object(self):
        assert decided(job(expire_at=ago(60)), JOB) == ignore("unfinished")

    def test_due_instant_beyond_the_calendar_is_the_end_of_the_calendar(self):
        obj = job(complete="9999-12-31T00:00:00Z", ttl_succeeded="36500d")

        assert decided(obj, JOB) == wait(datetime.max.replace(tzinfo=UTC))

    # Each is one field of an object that would be due otherwise, and the text that its report must contain.
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("", "duration"),
            (" 1h", "duration"),
            ("1h ", "duration"),
            ("1 h", "duration"),
            ("-1", "duration"),
            ("+1", "duration"),
            ("1.5h", "duration"),
            ("1e3", "duration"),
            ("30m1h", "duration"),
            ("1h1h", "duration"),
            ("1y", "duration"),
            ("1H", "duration"),
            ("90ms", "duration"),
            ("PT1H", "duration"),
            ("h", "duration"),
            ("Never", "expected never, seconds"),
            ("none", "expected never, seconds"),
            ("٣", "duration"),
            ("1\n", "duration"),
            ("9999999999999", "at most 36500d"),
            ("36501d", "at most 36500d"),
            ("x" * 10_000, "duration"),
            (3600, "expected text"),
            (True, "expected text"),
            (None, "expected text"),
            (["1h"], "expected text"),
        ],
        ids=ascii,
    )
    @pytest.mark.parametrize("name", ["ttl", "ttl-succeeded", "ttl-failed"])
    def test_malformed_duration_keeps_the_object_with_a_problem(self, name, value, expected):
        obj = annotated(job(complete=ago(60), ttl=0), **{name: value})

        decision = decide(obj, JOB, NOW, Context(namespace=HOME))

        assert verdict(decision) == ignore("invalid-ttl")
        assert decision.facts.problem.startswith(f"annotation ttlafterfinished.dev/{name}: expected ")
        assert expected in decision.facts.problem
        assert len(decision.facts.problem) < 300

    @pytest.mark.parametrize(
        "value",
        [
            "",
            "now",
            "1h",
            "never",
            "2026-03-14",
            "2026-03-14T15:09:26",
            "2026-03-14 15:09:26Z",
            "2026-02-30T00:00:00Z",
            "2026-03-14T25:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "1773500966",
            1773500966,
            True,
            None,
            "T" * 10_000,
        ],
        ids=ascii,
    )
    def test_malformed_instant_keeps_the_object_with_a_problem(self, value):
        obj = annotated(job(complete=ago(60), ttl=0), expire_at=value)

        decision = decide(obj, JOB, NOW, Context(namespace=HOME))

        assert verdict(decision) == ignore("invalid-ttl")
        assert decision.facts.problem.startswith("annotation ttlafterfinished.dev/expire-at: expected an RFC 3339 time")
        assert len(decision.facts.problem) < 300

    @pytest.mark.parametrize(
        "value",
        [-1, -0.5, 0.0, 10.0, float("nan"), float("inf"), True, False, "10", "", [], {}, 10**30, 10**5000],
        ids=lambda value: type(value).__name__,
    )
    def test_malformed_field_keeps_the_object_with_a_problem(self, value):
        decision = decide(job(complete=ago(60), ttl=value), JOB, NOW, Context(namespace=HOME))

        assert verdict(decision) == ignore("invalid-ttl")
        assert decision.facts.problem.startswith("spec.ttlSecondsAfterFinished: expected whole seconds from 0 to ")

    @pytest.mark.parametrize("name", ["ttl", "ttl-succeeded", "ttl-failed", "expire-at"])
    def test_ttl_annotation_with_a_huge_number_keeps_the_object(self, name):
        obj = annotated(job(complete=ago(60), ttl=0), **{name: 10**5000})

        assert decided(obj, JOB) == ignore("invalid-ttl")

    def test_malformed_annotation_keeps_the_object_although_another_one_is_valid(self):
        counts: dict[str, Any] = {"expire_at": ago(60), "ttl_succeeded": "0"}

        assert decided(job(complete=ago(60), ttl_failed="soon", **counts), JOB) == ignore("invalid-ttl")
        assert decided(job(complete=ago(60), ttl_="soon", **counts), JOB) == expire(ago(60))

    def test_malformed_annotation_of_an_unfinished_object_is_a_problem(self):
        assert decided(job(ttl_succeeded="soon"), JOB) == ignore("invalid-ttl")

    def test_malformed_field_is_not_read_if_an_annotation_sets_a_ttl(self):
        assert decided(job(complete=ago(60), ttl=-1, ttl_succeeded="0"), JOB) == expire(ago(60))


class TestUnknownShapes:
    @pytest.mark.parametrize(
        "obj",
        [
            None,
            [],
            "Job",
            7,
            {},
            {"apiVersion": "batch/v1", "kind": "Job"},
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": None},
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": []},
            job(complete=ago(60), ttl=0) | {"kind": "CronJob"},
            job(complete=ago(60), ttl=0) | {"apiVersion": "batch/v2"},
            job(complete=ago(60), ttl=0) | {"apiVersion": ["batch/v1"]},
            pod(containers=[ended(at=ago(60))], ttl="0"),
        ],
        ids=lambda obj: ascii(obj)[:40],
    )
    def test_object_of_another_kind_is_kept(self, obj):
        decision = decide(obj, JOB, NOW, Context(namespace=HOME))

        assert verdict(decision) == ignore("unknown-shape")
        assert decision.facts.problem == "expected a Job of batch/v1"

    @pytest.mark.parametrize("status", ["Complete", 7, True, [], [condition("Complete", ago(60))]], ids=ascii)
    def test_object_with_a_status_that_is_no_map_is_kept(self, status):
        assert decided(having(job(ttl=0), "status", status), JOB) == ignore("unknown-shape")

    @pytest.mark.parametrize("conditions", [{}, {"Complete": {"status": "True"}}, "Complete", 7, True], ids=ascii)
    def test_object_with_conditions_that_are_no_list_is_kept(self, conditions):
        assert decided(having(job(ttl=0), "status.conditions", conditions), JOB) == ignore("unknown-shape")

    @pytest.mark.parametrize("path", ["status", "status.conditions"])
    def test_object_without_a_status_is_unfinished(self, path):
        obj = job(complete=ago(60), ttl=0)

        assert decided(without(obj, path), JOB) == ignore("unfinished")
        assert decided(having(obj, path, None), JOB) == ignore("unfinished")

    @pytest.mark.parametrize(
        "other",
        [None, 7, "Complete", [], {}, {"type": None}, {"status": "True"}, {"type": "Complete", "phase": "True"}],
        ids=ascii,
    )
    def test_malformed_condition_is_skipped(self, other):
        assert decided(job(conditions=[other], ttl=0), JOB) == ignore("unfinished")
        assert decided(job(conditions=[other, condition("Complete", ago(60))], ttl=0), JOB) == expire(ago(60))

    @pytest.mark.parametrize("annotations", [None, [], "ttl", 7, {7: "0", None: "0"}], ids=ascii)
    def test_malformed_annotations_are_ignored(self, annotations):
        obj = having(job(complete=ago(60)), "metadata.annotations", annotations)

        assert decided(obj, JOB) == ignore("no-ttl")


class TestReasons:
    """Several reasons may apply; the first in the order of precedence is returned. Without it, the next is returned."""

    def test_reasons_have_a_fixed_order(self):
        gone_soon = "2026-03-14T15:00:00Z"
        obj = owned_by(pod([], containers=None, conditions=None, hold="x", ttl="soon"), "Job")
        steps = [
            having(obj, "metadata.deletionTimestamp", gone_soon),
            (obj := having(having(obj, "status.phase", "Running"), "metadata.deletionTimestamp", gone_soon)),
            (obj := without(obj, "metadata.deletionTimestamp")),
            (obj := having(obj, "metadata.annotations", {"ttlafterfinished.dev/ttl": "soon"})),
            (obj := annotated(obj, ttl="never")),
            (obj := having(obj, "status.phase", "Failed")),
            (obj := annotated(obj, ttl="0")),
            status_written(obj, ago(60)),
        ]

        found = [decided(step, POD, owner_unfinished=True)[1] for step in steps]

        assert found == [
            Reason.UNKNOWN_SHAPE,
            Reason.TERMINATING,
            Reason.HELD,
            Reason.INVALID_TTL,
            Reason.UNFINISHED,
            Reason.NEVER,
            Reason.FINISH_TIME_UNKNOWN,
            Reason.OWNER_UNFINISHED,
        ]

    def test_unfinished_takes_precedence_over_no_ttl(self):
        assert decided(job(), JOB) == ignore("unfinished")


class TestFacts:
    def test_facts_explain_the_decision(self):
        facts = decide(job(failed=ago(60), ttl=90), JOB, NOW, Context(namespace=HOME)).facts

        assert facts.finish.finished is True
        assert facts.finish.at == ago(60)
        assert facts.finish.outcome is Outcome.FAILED
        assert not_none(facts.ttl).source == "spec.ttlSecondsAfterFinished"
        assert facts.due_at == later(30)
        assert facts.problem == ""
        assert facts.summary() == (
            "finished 2026-03-14T15:08:26Z, due 2026-03-14T15:09:56Z by spec.ttlSecondsAfterFinished"
        )

    def test_unknown_facts_are_not_summarized(self):
        no_ttl = decide(job(failed=ago(60)), JOB, NOW, Context(namespace=HOME))
        running_on = decide(job(ttl=1), JOB, NOW, Context(namespace=HOME))

        assert no_ttl.facts.summary() == "finished 2026-03-14T15:08:26Z"
        assert running_on.facts.summary() == "finish time unknown"
        assert running_on.facts.due_at is None

    def test_expire_at_of_an_unfinished_object_is_no_due_instant(self):
        assert decide(job(expire_at=ago(60)), JOB, NOW, Context(namespace=HOME)).facts.due_at is None


class TestMayExpire:
    @pytest.mark.parametrize("name", ["ttl", "ttl_succeeded", "ttl_failed", "expire_at"])
    def test_object_with_a_malformed_ttl_annotation_may_expire(self, name):
        assert may_expire(annotated(job(), **{name: "x"}), JOB, AT_HOME)
        assert may_expire(annotated(without(without(pod(), "spec"), "status"), **{name: "x"}), POD, AT_HOME)

    def test_object_with_the_native_field_may_expire(self):
        assert may_expire(job(ttl=0), JOB, AT_HOME)
        assert not may_expire(job(), JOB, AT_HOME)
        assert not may_expire(having(pod(), "spec.ttlSecondsAfterFinished", 0), POD, AT_HOME)

    def test_held_or_terminating_object_may_not_expire(self):
        assert not may_expire(job(hold=""), JOB, AT_HOME)
        unhonoured = JOB.model_copy(update={"ttl": None})
        assert not may_expire(annotated(job(ttl=0, hold=""), ttl="1h"), unhonoured, AT_HOME)
        assert not may_expire(having(job(ttl=0), "metadata.deletionTimestamp", "2026-03-14T15:00:00Z"), JOB, AT_HOME)

    def test_held_object_may_expire_if_its_controller_acts_on_its_field(self):
        assert may_expire(job(ttl=0, hold=""), JOB)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-02T{text}+00:00")


# Dumps of real shapes: when each is due. Its TTL is an hour. None: not finished.
DUMPS = {
    "job-complete": utc("09:15:22"),
    "job-failure-target-then-failed": utc("11:01:02"),
    "job-failure-target": None,
    "job-suspended-resumed": utc("09:30:00"),
    "pod-succeeded": utc("09:05:10"),
    "pod-oom-killed": utc("09:39:58"),
    "pod-evicted-before-start": utc("09:12:07"),
    "pod-container-status-unknown": utc("12:00:34"),
    "pod-sidecar": utc("09:20:30"),
    "pod-init-failed": utc("09:11:00"),
    "pod-orphaned": utc("13:00:20"),
    "pod-never-ready": utc("12:00:03"),
    "trainjob-complete": utc("10:30:00"),
    "trainjob-failed": utc("09:45:00"),
    "trainjob-deadline-exceeded": utc("11:10:01"),
    "trainjob-suspended": None,
}


class TestRealObjects:
    def test_each_fixture_is_in_the_table(self):
        assert {path.stem for path in FIXTURES.glob("*.yaml")} == set(DUMPS)

    @pytest.mark.parametrize(("name", "due_at"), DUMPS.items(), ids=DUMPS)
    def test_real_object_is_due_an_hour_after_its_finish(self, name, due_at):
        obj = fixture(name)
        instants = [utc("08:00:00"), utc("12:00:00"), utc("23:59:59"), datetime(2036, 3, 2, tzinfo=UTC)]
        if due_at is not None:
            instants += [due_at - timedelta(seconds=1), due_at, due_at + timedelta(seconds=1)]

        for now in instants:
            expected = ignore("unfinished") if due_at is None else wait(due_at) if now < due_at else expire(due_at)
            assert decided(obj, rule_of(obj), now=now) == expected

    @pytest.mark.parametrize("name", [name for name in DUMPS if name.startswith("pod-")])
    def test_pod_of_a_running_job_is_kept(self, name):
        obj = owned_by(fixture(name), "Job")

        assert decided(obj, POD, now=utc("23:59:59"), owner_unfinished=True) == ignore("owner-unfinished")

    @pytest.mark.parametrize("name", DUMPS)
    def test_hold_keeps_a_real_object(self, name):
        obj = annotated(fixture(name), hold="inspected by hand")

        assert decided(obj, rule_of(obj), now=utc("23:59:59")) == ignore("held")


class TestServerClockAhead:
    @pytest.mark.parametrize(
        ("due_in", "ahead", "reason"),
        [
            (10, 0, Reason.NOT_DUE),
            (3_600, 3_600, Reason.SERVER_CLOCK_AHEAD),
            (3_601, 3_600, Reason.NOT_DUE),
            (0, 3_600, Reason.EXPIRED),
            (-10, 3_600, Reason.EXPIRED),
        ],
    )
    def test_object_due_only_by_a_server_clock_ahead_waits(self, due_in, ahead, reason):
        obj = job(complete=ago(30), ttl=30 + due_in)
        decision = decide(obj, JOB, NOW, Context(namespace=HOME), ahead=timedelta(seconds=ahead))

        assert decision.reason is reason
        assert isinstance(decision, Expire if due_in <= 0 else Wait)
