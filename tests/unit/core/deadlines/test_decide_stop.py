"""The specification of decisions about active deadlines: each branch as a table, in the order of precedence.

The first tables follow the deadline of a TrainJob in Kubeflow Trainer: finished, suspended, the start, a resume.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.core.deadlines.deadline import STOPS_MAX
from shared.core.deadlines.decide_stop import Stop, decide_stop, may_stop
from shared.core.decision.decide import Context, Expire, Ignore, Wait, decide
from shared.core.decision.finish import find_stop_problem, finish_of
from shared.core.decision.namespaces import namespace_of, plain_namespace
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.kinds.ttl_and_deadline import DeadlineRule
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.objects import format_instant
from tests.builders import (
    JOB,
    NOW,
    POD,
    ago,
    annotated,
    condition,
    created,
    having,
    job,
    kind_rules,
    later,
    namespace,
    not_none,
    owned_by,
    without,
)

HOME = plain_namespace("ci")
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
IN_PLACE = "spec.suspend"


def with_deadline(rule: KindRule = JOB, *, settings: dict[str, Any] | None = None, **fields: Any) -> KindRule:
    """A rule with other settings of its deadline: `with_deadline(suspended=None)`."""
    present = not_none(JOB.deadline).model_dump(exclude_none=True, exclude_unset=True)
    if "stop" in (settings or {}):
        present = {name: value for name, value in present.items() if name not in ("suspend", "exception")}
    wanted = {name: value for name, value in {**present, **(settings or {})}.items() if value is not None}
    deadline = DeadlineRule.model_validate(wanted)
    return rule.model_copy(update={"deadline": deadline, **fields})


WITHOUT = JOB.model_copy(update={"deadline": None})
CANNOT = with_deadline(settings={"stop": None, "cannot_stop": "its controller starts another"})
CLUSTERED = JOB.model_copy(update={"scope": "Cluster"})
OPT_IN = JOB.model_copy(update={"opt_in": "it is a handle to data"})
AGGREGATED = JOB.model_copy(update={"api_versions": ("batch.example.com/v1",)})
ZERO_IS_NEVER = with_deadline(
    settings={"native": {"fields": [{"path": "spec.activeDeadlineSeconds"}], "zero": "never", "honouredBy": "C"}}
)


def started(at: datetime | str | None = None, *, deadline: Any = "1m", rule: KindRule = JOB, **annotations: Any) -> Any:
    """A running Job that started 100 s ago; its deadline is a minute, so it is over."""
    given = {"active_deadline": deadline} if deadline is not None else {}
    obj = having(job(**given, **annotations), "status.startTime", at if isinstance(at, str) else ago(100))
    obj["status"]["startTime"] = obj["status"]["startTime"] if isinstance(at, str) else _stamp(at or ago(100))
    return having(obj, "metadata.generation", 4) | {"apiVersion": rule.api_version}


def _stamp(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def stopped(obj: Any, at: datetime, *, stops: str = "1", generation: str = "4") -> Any:
    """The object with the mark of a stop; without what the stop changed in its spec."""
    return annotated(obj, deadline_exceeded=at, stops=stops, stopped_generation=generation)


def suspended(obj: Any, at: datetime | str = NOW) -> Any:
    return having(having(obj, IN_PLACE, True), "status.conditions", [condition("Suspended", at)])


def resumed(obj: Any, at: datetime) -> Any:
    """The object with what the Job controller writes when it resumes a Job."""
    obj = having(having(obj, IN_PLACE, False), "status.conditions", [condition("Suspended", at, status="False")])
    return having(obj, "status.startTime", _stamp(at))


def policy(*settings: dict[str, Any]) -> Policy:
    given = [{"name": f"rule-{n}", "match": {"kinds": ["jobs"]}} | one for n, one in enumerate(settings)]
    return Policy.model_validate({"rules": given})


def decided(obj: Any, rule: KindRule = JOB, now: datetime = NOW, **known: Any) -> Any:
    return decide_stop(obj, rule, now, Context(**{"namespace": HOME} | known))


def reason(obj: Any, rule: KindRule = JOB, *, now: datetime = NOW, **known: Any) -> str:
    """The reason; `stop` and `wait` for the two that act."""
    decision = decided(obj, rule, now, **known)
    return {Stop: "stop", Wait: "wait"}.get(type(decision), str(decision.reason))


class TestDue:
    @pytest.mark.parametrize(("deadline", "since"), [("99s", ago(1)), ("100s", NOW)])
    def test_object_whose_deadline_is_over_is_stopped(self, deadline, since):
        decision = decided(started(deadline=deadline))

        assert (type(decision), decision.since, decision.reason) == (Stop, since, "deadline-exceeded")

    def test_object_waits_until_its_deadline_is_over(self):
        decision = decided(started(deadline="101s"))

        assert (type(decision), decision.until, decision.reason) == (Wait, later(1), "not-due")

    @pytest.mark.parametrize(("seconds", "expected"), [(-1e-6, "wait"), (0.0, "stop"), (1e-6, "stop")])
    def test_object_is_stopped_exactly_at_its_deadline(self, seconds, expected):
        assert reason(started(deadline="101s"), now=later(1) + timedelta(seconds=seconds)) == expected

    def test_object_that_is_due_by_the_wrong_clock_only_waits(self):
        obj = started(deadline="110s")

        for ahead, expected in ((9.9, "not-due"), (10.0, "server-clock-ahead")):
            decision = decide_stop(obj, JOB, NOW, Context(namespace=HOME), ahead=timedelta(seconds=ahead))
            assert (type(decision), decision.reason) == (Wait, expected)

    def test_deadline_beyond_the_last_instant_waits_for_ever(self):
        decision = decided(having(started(deadline="36500d"), "status.startTime", "9999-01-01T00:00:00Z"))

        assert (type(decision), decision.until) == (Wait, LAST)

    def test_deadline_of_an_object_counts_from_its_start_and_not_from_its_creation(self):
        decision = decided(created(started(), ago(10_000)))

        assert decision.since == ago(40)
        assert decision.facts.active.started_at == ago(100)


class TestClock:
    """Finished, suspended, the start, a resume."""

    @pytest.mark.parametrize("kind", ["Complete", "Failed"])
    def test_finished_object_is_left_alone(self, kind):
        assert reason(having(started(), "status.conditions", [condition(kind, ago(10))])) == "finished"

    @pytest.mark.parametrize(
        "obj",
        [
            suspended(started()),
            having(started(), IN_PLACE, True),
            having(started(), "status.conditions", [condition("Suspended", ago(5))]),
        ],
        ids=["suspended", "its controller has not suspended it yet", "its controller has not resumed it yet"],
    )
    def test_clock_does_not_run_while_the_object_is_suspended(self, obj):
        decision = decided(obj)

        assert (decision.reason, decision.facts.due_at) == ("suspended", None)

    @pytest.mark.parametrize(
        ("status", "spec", "expected"),
        [
            ({"phase": "Pending"}, {}, "not-started"),
            ({}, {}, "not-started"),
            ({"phase": "Pending"}, {"schedulingGates": [{"name": "example.com/quota"}]}, "not-started"),
            ({"phase": "Pending"}, {"schedulingGates": [{"name": "ttlafterfinished.dev/restored"}]}, "suspended"),
            ({"phase": "Pending", "startTime": format_instant(ago(10))}, {}, "not-due"),
            ({"phase": "Pending", "startTime": format_instant(ago(61))}, {}, "deadline-exceeded"),
        ],
        ids=["unschedulable", "new", "gated", "restored", "pulls its image", "has not pulled its image"],
    )
    def test_pod_that_no_node_accepted_has_not_started(self, status, spec, expected):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {}}, "spec": spec, "status": status}
        pod = annotated(pod, active_deadline="60s")
        assert str(decide_stop(pod, POD, NOW, Context(namespace=HOME)).reason) == expected

    def test_suspended_object_of_a_kind_that_cannot_be_suspended_is_stopped(self):
        cancelled = {"stop": {"patch": {"spec": {"status": "Cancelled"}}}}

        assert reason(suspended(started()), with_deadline(settings={"suspended": None} | cancelled)) == "stop"

    @pytest.mark.parametrize("seconds", range(0, 130, 10))
    def test_clock_restarts_at_a_resume(self, seconds):
        expected = "stop" if seconds >= 60 else "wait"
        decision = decided(resumed(started(ago(10_000)), ago(seconds)))

        assert {Stop: "stop", Wait: "wait"}[type(decision)] == expected
        assert decision.facts.due_at == ago(seconds - 60)

    @pytest.mark.parametrize("since", ["status.startTime", "condition"])
    def test_newest_start_counts(self, since):
        obj = resumed(started(), ago(30))
        obj = having(obj, "status.startTime", _stamp(ago(500))) if since == "condition" else obj

        assert reason(obj) == "wait"

    @pytest.mark.parametrize("start", [None, "soon", 5, [], "0001-01-01T00:00:00Z"])
    def test_object_without_a_start_is_left_alone(self, start):
        obj = started()
        obj["status"]["startTime"] = start

        assert reason(obj) == "start-time-unknown"

    @pytest.mark.parametrize("shape", [{"conditions": 5}, {"conditions": "x"}, [], "running"])
    def test_object_of_unknown_shape_is_left_alone(self, shape):
        assert reason(started() | {"status": shape}) == "unknown-shape"

    @pytest.mark.parametrize(
        "obj", [None, [], "Job", {}, {"apiVersion": "v1", "kind": "Pod", "metadata": {}}, started() | {"metadata": 1}]
    )
    def test_object_of_another_kind_is_left_alone(self, obj):
        assert reason(obj) == "unknown-shape"


class TestDeliberate:
    """The facts that take precedence over every deadline."""

    @pytest.mark.parametrize("deadline", [None, "1m", "never", "soon"])
    @pytest.mark.parametrize("mark", [None, ago(50), "once"])
    @pytest.mark.parametrize("is_suspended", [False, True])
    @pytest.mark.parametrize(
        ("why", "obj", "rule", "known"),
        [
            ("held", {"hold": "look at it"}, JOB, {}),
            ("exempt", {}, JOB, {"namespace": namespace_of(namespace(exempt="true"))}),
            ("held", {"hold": ""}, CANNOT, {"namespace": namespace_of(namespace(exempt="true"))}),
        ],
    )
    def test_hold_and_exempt_namespace_take_precedence(self, deadline, mark, is_suspended, why, obj, rule, known):
        one = started(deadline=deadline, **obj)
        one = annotated(one, deadline_exceeded=mark) if mark else one
        one = suspended(one) if is_suspended else one

        assert reason(one, rule, **known) == why

    def test_object_that_goes_is_left_alone(self):
        assert reason(having(started(), "metadata.deletionTimestamp", _stamp(ago(1)))) == "terminating"

    def test_kind_that_never_finishes_is_left_alone(self):
        rule = WITHOUT.model_copy(update={"never_finishes": "it serves", "finished": None, "finished_at": ()})

        assert reason(started(), rule) == "never-finishes"

    @pytest.mark.parametrize("name", ["default_ttl", "max_ttl", "default_active_deadline", "max_active_deadline"])
    def test_namespace_that_cannot_be_read_stops_nothing(self, name):
        settings: Any = {name: "soon"}
        place = namespace_of(namespace(**settings))
        decision = decided(started(), namespace=place)

        assert decision.reason == "invalid-policy"
        assert (decision.facts.problem, decision.facts.problem_of) == (place.problem, place.ref)


class TestSources:
    @pytest.mark.parametrize(
        ("obj", "rules", "place", "source", "due"),
        [
            (started(deadline="2m"), [{"activeDeadline": "3m"}], {"default": "4m"}, "annotation", 20),
            (started(deadline=None), [{"activeDeadline": "3m"}], {"default": "4m"}, "policy rule rule-0", 80),
            (started(deadline=None), [{"ttl": "1s"}, {"activeDeadline": "3m"}], {}, "policy rule rule-1", 80),
            (started(deadline=None), [{"ttl": "1s"}], {"default": "4m"}, "default-active-deadline", 140),
            (started(deadline="2m"), [], {"max": "90s"}, "annotation", -10),
            (started(deadline="2m"), [], {"max": "3m"}, "annotation", 20),
            (started(deadline=None), [{"activeDeadline": "3m"}], {"max": "90s"}, "policy rule rule-0", -10),
            (started(deadline=None), [], {"default": "4m", "max": "90s"}, "default-active-deadline", -10),
        ],
    )
    def test_first_source_takes_precedence_and_the_maximum_shortens_it(self, obj, rules, place, source, due):
        settings: Any = {f"{name}_active_deadline": value for name, value in place.items()}
        facts = decided(obj, policy=policy(*rules), namespace=namespace_of(namespace(**settings))).facts

        assert not_none(facts.active.deadline).source.endswith(source.replace("annotation", "/active-deadline"))
        assert facts.due_at == later(due)
        assert bool(facts.active.moved_by) == (place.get("max") == "90s")
        assert (facts.policy_rule is not None) == source.startswith("policy")

    @pytest.mark.parametrize(
        ("obj", "rules", "place"),
        [
            (started(deadline="never"), [{"activeDeadline": "1m"}], {"default_active_deadline": "1m"}),
            (started(deadline=None), [{"activeDeadline": "never"}], {"default_active_deadline": "1m"}),
            (started(deadline=None), [], {"default_active_deadline": "never"}),
        ],
    )
    def test_never_is_a_deadline_that_no_maximum_shortens(self, obj, rules, place):
        settings: Any = place | {"max_active_deadline": "1s"}

        assert reason(obj, policy=policy(*rules), namespace=namespace_of(namespace(**settings))) == "never"

    def test_object_without_a_deadline_is_left_alone(self):
        assert reason(started(deadline=None)) == "no-deadline"
        assert reason(started(deadline=None), policy=policy({"ttl": "1s"})) == "no-deadline"

    def test_opt_in_kind_has_no_default_and_only_a_rule_that_names_it(self):
        place = namespace_of(namespace(default_active_deadline="1s"))
        every = Policy.model_validate({"rules": [{"name": "all", "match": {"kinds": ["*"]}, "activeDeadline": "1s"}]})

        assert reason(started(deadline=None), OPT_IN, namespace=place, policy=every) == "no-deadline"
        assert reason(started(deadline=None), OPT_IN, policy=policy({"activeDeadline": "1s"})) == "stop"
        assert reason(started(), OPT_IN, namespace=place) == "stop"

    def test_cluster_scoped_object_needs_no_namespace(self):
        assert reason(started(), CLUSTERED, namespace=None) == "stop"
        assert reason(started(deadline=None), CLUSTERED, namespace=None) == "no-deadline"

    def test_rule_that_cannot_be_evaluated_stops_nothing(self):
        rules = policy({"when": "object.status.nothing > 3", "activeDeadline": "1m"})
        facts = decided(started(deadline=None), policy=rules).facts

        assert reason(started(deadline=None), policy=rules) == "invalid-policy"
        assert facts.unanswered == "policy rule rule-0"
        assert reason(started(), policy=rules) == "stop"


class TestNamespaceUnread:
    @pytest.mark.parametrize(
        ("obj", "rules", "due"),
        [
            (started(), [], ago(40)),
            (started(deadline=None), [], None),
            (started(deadline=None), [{"activeDeadline": "2m"}], later(20)),
            (started(deadline=None), [{"match": {"kinds": ["jobs"], "namespaces": {"selector": {"matchLabels":
                {"a": "b"}}}}, "activeDeadline": "2m"}], None),
        ],
        ids=["its own", "none", "a rule", "a rule about the namespace"],
    )  # fmt: skip
    def test_object_whose_namespace_was_not_read_is_left_alone(self, obj, rules, due):
        decision = decided(obj, namespace=None, policy=policy(*rules))

        assert (decision.reason, decision.facts.due_at) == ("namespace-unread", due)

    @pytest.mark.parametrize("rule", [WITHOUT, OPT_IN])
    def test_kind_without_a_default_needs_no_namespace(self, rule):
        assert reason(started(deadline=None), rule, namespace=None) == "no-deadline"


class TestNative:
    @pytest.mark.parametrize("value", [0, 1, 100, 3_600, 2**31])
    def test_object_whose_field_is_set_is_left_to_its_controller(self, value):
        decision = decided(having(started(), "spec.activeDeadlineSeconds", value))

        assert decision.reason == "enforced-by-controller"
        assert decision.facts.active.enforced_by == "the Job controller"
        assert decision.facts.due_at == ago(100) + timedelta(seconds=value)
        assert not_none(decision.facts.active.deadline).source == "spec.activeDeadlineSeconds"
        assert decision.facts.active.moved_by == ""

    @pytest.mark.parametrize("value", [-1, "60", True, 1.5, [], {}, 10**20])
    def test_field_that_cannot_be_read_is_left_to_its_controller(self, value):
        decision = decided(having(started(), "spec.activeDeadlineSeconds", value))

        assert decision.reason == "enforced-by-controller"
        assert "spec.activeDeadlineSeconds" in decision.facts.problem
        assert decision.facts.due_at is None

    def test_field_that_means_never_is_no_deadline(self):
        assert reason(having(started(), "spec.activeDeadlineSeconds", 0), ZERO_IS_NEVER) == "stop"
        assert reason(having(started(), "spec.activeDeadlineSeconds", 1), ZERO_IS_NEVER) == "enforced-by-controller"

    def test_field_of_a_suspended_object_has_no_due_time(self):
        decision = decided(suspended(having(started(), "spec.activeDeadlineSeconds", 60)))

        assert (decision.reason, decision.facts.due_at) == ("enforced-by-controller", None)

    @pytest.mark.parametrize("deadline", ["1s", "never", None])
    def test_field_takes_precedence_over_every_source(self, deadline):
        obj = having(started(deadline=deadline), "spec.activeDeadlineSeconds", 60)
        place = namespace_of(namespace(default_active_deadline="1s", max_active_deadline="1s"))

        assert reason(obj, namespace=place, policy=policy({"activeDeadline": "1s"})) == "enforced-by-controller"


class TestInvalid:
    @pytest.mark.parametrize(
        "value", ["0", "0s", "-1", "soon", "", "1.5h", str(10**20), "36501d", [], 60, {}, True, None]
    )
    def test_deadline_that_cannot_be_read_stops_nothing(self, value):
        obj = started()
        obj["metadata"]["annotations"]["ttlafterfinished.dev/active-deadline"] = value

        for rule in (JOB, CANNOT, WITHOUT):
            decision = decided(obj, rule, policy=policy({"activeDeadline": "1s"}))
            assert decision.reason == "invalid-deadline"
            assert "ttlafterfinished.dev/active-deadline" in decision.facts.problem
            assert decision.facts.due_at is None

    @pytest.mark.parametrize("value", ["", "Delete", "remove", 5, None, []])
    def test_action_that_cannot_be_read_stops_nothing(self, value):
        obj = started()
        obj["metadata"]["annotations"]["ttlafterfinished.dev/on-deadline"] = value

        assert reason(obj) == "invalid-deadline"

    def test_finished_object_with_an_invalid_deadline_is_finished(self):
        assert reason(having(started(deadline="soon"), "status.conditions", [condition("Failed", NOW)])) == "finished"

    def test_invalid_deadline_of_a_held_object_is_a_problem_and_the_hold_is_the_reason(self):
        decision = decided(started(deadline="soon", hold="x"))

        assert (decision.reason, bool(decision.facts.problem)) == ("held", True)


class TestCannotStop:
    @pytest.mark.parametrize("rule", [CANNOT, WITHOUT])
    def test_kind_that_cannot_be_stopped_says_why(self, rule):
        decision = decided(started(), rule)

        assert decision.reason == "cannot-stop"
        assert decision.facts.problem

    @pytest.mark.parametrize(
        ("annotations", "rules", "expected"),
        [
            ({"on_deadline": "delete"}, [], "stop"),
            ({"on_deadline": "stop"}, [], "cannot-stop"),
            ({"deadline": None}, [{"activeDeadline": "1m", "onDeadline": "delete"}], "stop"),
            ({"deadline": None}, [{"activeDeadline": "1m", "onDeadline": "stop"}], "cannot-stop"),
            (
                {"deadline": None, "on_deadline": "stop"},
                [{"activeDeadline": "1m", "onDeadline": "delete"}],
                "cannot-stop",
            ),
            ({"deadline": "1m"}, [{"activeDeadline": "1m", "onDeadline": "delete"}], "cannot-stop"),
        ],
    )
    def test_object_is_deleted_at_its_deadline_only_if_that_was_asked_for(self, annotations, rules, expected):
        obj = started(**annotations)

        assert reason(obj, CANNOT, policy=policy(*rules)) == expected
        deletes = decided(obj, policy=policy(*rules)).facts.active.deletes
        assert deletes == (expected == "stop")

    @pytest.mark.parametrize("when", ["true", "outcome == 'failed'", "object.status.failed == 3"])
    def test_object_that_is_archived_when_it_finishes_is_not_deleted_at_its_deadline(self, when):
        rule = {"name": "copied", "match": {"kinds": ["jobs"]}, "when": when, "archive": {"to": "main"}}
        archiving = Policy.model_validate({"archives": {"main": {"url": "file:///a/b"}}, "rules": [rule]})

        decision = decided(started(on_deadline="delete"), policy=archiving)

        assert decision.reason == "cannot-stop"
        assert "policy rule copied has it archived" in decision.facts.problem

    def test_kind_without_a_rule_for_deadlines_is_not_deleted_either(self):
        assert reason(started(on_deadline="delete"), WITHOUT) == "cannot-stop"


class TestMark:
    def test_stopped_object_is_left_alone(self):
        decision = decided(stopped(suspended(started()), ago(40)))

        assert decision.reason == "already-stopped"

    def test_stop_by_the_field_of_the_kind_is_not_repeated_until_the_controller_acts(self):
        obj = stopped(having(started(), "spec.activeDeadlineSeconds", 1), ago(1))

        assert (reason(obj), finish_of(obj, JOB).finished) == ("already-stopped", False)
        obj = having(obj, "status.conditions", [condition("Failed", NOW)])
        assert (reason(obj), finish_of(obj, JOB).outcome) == ("already-stopped", Outcome.FAILED)

    @pytest.mark.parametrize("generation", ["4", ""])
    def test_stop_that_its_controller_has_not_seen_yet_is_not_repeated(self, generation):
        obj = stopped(having(started(), IN_PLACE, True), ago(1), generation=generation)

        decision = decided(obj)
        assert (decision.reason, decision.facts.due_at) == ("already-stopped", None)

    def test_object_that_another_client_stopped_for_good_is_left_alone(self):
        rule = with_deadline(settings={"suspended": None, "stop": {"patch": {"spec": {"shutdown": "Terminate"}}}})

        assert reason(having(started(), "spec.shutdown", "Terminate"), rule) == "already-stopped"
        assert reason(having(started(), "spec.shutdown", "Stop"), rule) == "stop"

    def test_stopped_object_that_a_person_resumed_and_suspended_is_suspended(self):
        obj = having(stopped(suspended(started()), ago(40)), "metadata.generation", 6)

        assert reason(obj) == "suspended"

    @pytest.mark.parametrize(("seconds", "expected"), [(30, "wait"), (59, "wait"), (60, "stop"), (90, "stop")])
    def test_stopped_object_that_was_resumed_has_a_new_deadline(self, seconds, expected):
        assert reason(stopped(resumed(started(), ago(seconds)), ago(95))) == expected

    @pytest.mark.parametrize("seconds", [101, 10_000])
    def test_stop_that_was_undone_without_a_new_start_is_not_repeated(self, seconds):
        assert reason(stopped(resumed(started(), ago(seconds)), ago(100))) == "stop-undone"

    @pytest.mark.parametrize(("fraction", "expected"), [(0.0, "stop"), (0.9, "stop"), (1.0, "stop-undone")])
    def test_start_in_the_second_of_the_stop_is_a_new_one(self, fraction, expected):
        """Starts are whole seconds, and the stop has a fraction."""
        assert reason(stopped(resumed(started(), ago(100)), ago(100 - fraction))) == expected

    def test_stop_of_an_object_whose_start_is_gone_is_not_repeated(self):
        assert reason(stopped(without(started(), "status.startTime"), ago(50))) == "stop-undone"

    @pytest.mark.parametrize("stops", range(1, 6))
    def test_object_is_stopped_a_limited_number_of_times(self, stops):
        obj = stopped(resumed(started(), ago(70)), ago(80), stops=str(stops))

        assert reason(obj) == ("stop" if stops < STOPS_MAX else "stop-undone")

    @pytest.mark.parametrize("stops", ["0", "-1", "", "x", "1e3", "٣", "1" * 7, None, 1, []])
    def test_mark_with_a_malformed_number_of_stops_stops_nothing(self, stops):
        obj = stopped(resumed(started(), ago(70)), ago(80))
        obj["metadata"]["annotations"]["ttlafterfinished.dev/stops"] = stops

        assert reason(obj) == "invalid-deadline"

    @pytest.mark.parametrize("at", ["", "once", "5", None, 5, []])
    def test_mark_with_a_malformed_instant_stops_nothing(self, at):
        obj = stopped(started(), ago(80))
        obj["metadata"]["annotations"]["ttlafterfinished.dev/deadline-exceeded"] = at

        assert reason(obj) == "invalid-deadline"

    def test_mark_of_another_object_does_not_count(self):
        obj = stopped(created(started(), ago(100)), ago(101), stops="3")

        assert reason(obj) == "stop"
        assert decided(obj).facts.active.mark is None
        assert reason(stopped(created(started(), ago(100)), ago(100), stops="3")) == "stop-undone"

    def test_removed_mark_lets_the_object_be_stopped_again(self):
        obj = stopped(resumed(started(), ago(70)), ago(80), stops="3")
        del obj["metadata"]["annotations"]["ttlafterfinished.dev/deadline-exceeded"]

        assert reason(obj) == "stop"


class TestAction:
    @pytest.mark.parametrize(
        ("annotations", "rules", "expected"),
        [
            ({}, [], "stop"),
            ({"on_deadline": "suspend"}, [], "suspend"),
            ({"deadline": None}, [{"activeDeadline": "1m", "onDeadline": "suspend"}], "suspend"),
            ({"deadline": None, "on_deadline": "stop"}, [{"activeDeadline": "1m", "onDeadline": "suspend"}], "stop"),
        ],
    )
    def test_job_is_failed_at_its_deadline_or_suspended_if_a_source_asks_for_that(self, annotations, rules, expected):
        decision = decided(started(**annotations), policy=policy(*rules))

        assert (type(decision), decision.facts.active.action) == (Stop, expected)

    def test_kind_whose_stop_is_a_suspension_is_suspended_either_way(self):
        rule = with_deadline(settings={"stop": not_none(not_none(JOB.deadline).suspend)})

        assert (reason(started(), rule), reason(started(on_deadline="suspend"), rule)) == ("stop", "stop")

    def test_object_of_a_kind_that_cannot_be_suspended_is_left_alone(self):
        rule = with_deadline(settings={"stop": {"patch": {"spec": {"shutdown": "Terminate"}}}})
        decision = decided(started(on_deadline="suspend"), rule)

        assert decision.reason == "cannot-stop"
        assert decision.facts.problem.endswith("expected on-deadline: stop or delete")

    @pytest.mark.parametrize(
        ("manager", "action", "expected"),
        [
            ("kueue.x-k8s.io/multikueue", "stop", "cannot-stop"),
            ("kueue.x-k8s.io/multikueue", "suspend", "cannot-stop"),
            ("kueue.x-k8s.io/multikueue", "delete", "stop"),
            ("kubernetes.io/job-controller", "stop", "stop"),
        ],
    )
    def test_job_of_another_controller_is_only_deleted(self, manager, action, expected):
        obj = having(started(on_deadline=action), "spec.managedBy", manager)

        assert reason(obj) == expected

    def test_object_that_a_shipped_rule_leaves_to_another_controller_is_not_stopped(self):
        """Such as MultiKueue's: the controller of the kind does not look at the object."""
        rules = {
            name: rule.deadline for name, rule in kind_rules().items() if rule.deadline and rule.deadline.exception
        }
        assert rules.keys() == MANAGED.keys()
        for name, (field, own) in MANAGED.items():
            nothing: Any = {"spec": {"runPolicy": {}}}
            deadline = rules[name]
            other = having(nothing, field, "kueue.x-k8s.io/multikueue")
            assert "names another controller" in find_stop_problem(other, deadline, "stop"), name
            assert not find_stop_problem(having(nothing, field, own), deadline, "stop"), name
            assert not find_stop_problem(nothing, deadline, "stop"), name


TRAINING = ("jaxjobs", "mpijobs-v1", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs")
MANAGED = {
    "job": ("spec.managedBy", "kubernetes.io/job-controller"),
    "rayjobs.ray.io": ("spec.managedBy", "ray.io/kuberay-operator"),
    **{f"{one}.kubeflow.org": ("spec.runPolicy.managedBy", "kubeflow.org/training-operator") for one in TRAINING},
}
"""The field that names the controller of an object, and the controller whose objects are stopped."""


class TestBeside:
    def test_object_that_another_cluster_sent_is_left_alone(self):
        obj = having(started(), "metadata.labels", {"kueue.x-k8s.io/multikueue-origin": "manager"})
        decision = decided(obj)

        assert (decision.reason, not_none(decision.facts.dispatcher).name) == ("dispatched", "MultiKueue")

    @pytest.mark.parametrize(
        ("obj", "rules", "place", "expected"),
        [
            (started(), [], {}, "stop"),
            (started(), [], {"max_active_deadline": "30s"}, "owner-unfinished"),
            (started(deadline=None), [], {"default_active_deadline": "1m"}, "owner-unfinished"),
            (started(deadline=None, owner="ignore"), [], {"default_active_deadline": "1m"}, "stop"),
            (started(deadline=None, owner="keep"), [], {"default_active_deadline": "1m"}, "owner-unfinished"),
            (started(deadline=None), [{"activeDeadline": "1m"}], {}, "owner-unfinished"),
            (started(deadline=None), [{"activeDeadline": "1m", "onOwned": "keep"}], {}, "owner-unfinished"),
            (started(deadline=None), [{"activeDeadline": "1m", "onOwned": "delete"}], {}, "stop"),
        ],
    )
    def test_unfinished_owner_keeps_an_object_that_sets_no_deadline_itself(self, obj, rules, place, expected):
        known: Any = {"policy": policy(*rules), "namespace": namespace_of(namespace(**place))}

        assert reason(owned_by(obj, "CronJob"), owner_unfinished=True, **known) == expected
        assert reason(owned_by(obj, "CronJob"), owner_unfinished=False, **known) == "stop"

    def test_object_of_an_aggregated_server_is_left_alone(self):
        obj = started(rule=AGGREGATED)
        honoured = AGGREGATED.model_copy(update={"preconditions": "honoured"})

        assert reason(obj, AGGREGATED, aggregated=True) == "aggregated-api"
        assert reason(obj, AGGREGATED, aggregated=None) == "api-unread"
        assert reason(obj, AGGREGATED, aggregated=False) == "stop"
        assert reason(obj, honoured, aggregated=True) == "stop"


class TestMayStop:
    @pytest.mark.parametrize(
        ("expected", "obj", "rule", "known"),
        [
            (True, started(), JOB, {}),
            (True, started(), WITHOUT, {}),
            (True, started(), OPT_IN, {}),
            (True, started(deadline=None, on_deadline="explode"), JOB, {}),
            (True, stopped(started(deadline=None), NOW), JOB, {}),
            (True, started(deadline=None), JOB, {"namespace": None}),
            (True, started(deadline=None), JOB, {"policy": policy({"activeDeadline": "1s"})}),
            (True, started(deadline=None), WITHOUT, {"policy": policy({"activeDeadline": "1s"})}),
            (True, started(deadline=None), JOB, {"namespace": namespace_of(namespace(default_active_deadline="1s"))}),
            (False, started(deadline=None), JOB, {}),
            (False, started(deadline=None), WITHOUT, {"namespace": None}),
            (False, started(deadline=None), OPT_IN, {"namespace": None}),
            (False, started(deadline=None), CLUSTERED, {"namespace": None}),
            (False, started(hold="x"), JOB, {}),
            (False, having(started(), "metadata.deletionTimestamp", "x"), JOB, {}),
            (False, started(), WITHOUT.model_copy(update={"never_finishes": "it serves"}), {}),
        ],
    )
    def test_object_may_have_a_deadline_by_its_metadata_the_policy_and_its_namespace(self, expected, obj, rule, known):
        assert may_stop(obj, rule, Context(**{"namespace": HOME} | known)) is expected


class TestAfterTheStop:
    """What `decide` makes of an object that was stopped: it failed, and its TTL runs."""

    def stopped_job(self, **options: Any) -> Any:
        return stopped(suspended(started(ttl=60, **options), ago(30)), ago(31))

    def test_stopped_object_counts_as_failed_from_its_condition_on(self):
        finish = finish_of(self.stopped_job(), JOB)

        assert (finish.finished, finish.at, finish.outcome) == (True, ago(30), Outcome.FAILED)

    def test_deadline_exceeded_then_ttl_counts_from_the_time_of_the_condition(self):
        obj, context = self.stopped_job(), Context(namespace=HOME)

        assert decide(obj, JOB, later(30) - timedelta(microseconds=1), context).reason == "not-due"
        decision = decide(obj, JOB, later(30), context)
        assert isinstance(decision, Expire)
        assert decision.since == later(30)
        assert reason(obj) == "already-stopped"

    def test_finish_is_never_before_the_stop(self):
        assert finish_of(stopped(suspended(started(), ago(90)), ago(31)), JOB).at == ago(31)

    def test_finish_time_is_unknown_if_it_is_unknown_when_the_stop_was_complete(self):
        finish = finish_of(stopped(suspended(started(), "never"), ago(31)), JOB)
        assert (finish.finished, finish.at) == (True, None)

    @pytest.mark.parametrize(
        "obj",
        [
            having(suspended(started(), ago(30)), "metadata.generation", 4),
            having(stopped(suspended(started(), ago(30)), ago(31)), IN_PLACE, False),
            stopped(having(started(), IN_PLACE, True), ago(31)),
            having(stopped(suspended(started(), ago(30)), ago(31)), "metadata.generation", 5),
            stopped(suspended(started(), ago(30)), ago(31), generation=""),
            stopped(suspended(started(), ago(30)), ago(31), stops="x"),
            stopped(suspended(created(started(), ago(20)), ago(10)), ago(31)),
        ],
        ids=[
            "suspended by a person",
            "resumed",
            "not suspended yet",
            "suspended again",
            "no generation",
            "malformed",
            "another's",
        ],
    )
    def test_object_without_a_proven_stop_is_unfinished(self, obj):
        assert finish_of(obj, JOB).finished is False
        assert isinstance(decide(annotated(obj, ttl="0s"), JOB, LAST, Context(namespace=HOME)), Ignore)

    def test_object_whose_kind_reports_the_end_itself_is_unfinished_until_then(self):
        rule = with_deadline(settings={"stop": {"patch": {"spec": {"suspend": True}}}})

        assert finish_of(self.stopped_job(), rule).finished is False

    def test_resumed_object_is_unfinished_at_once(self):
        obj = having(having(self.stopped_job(), IN_PLACE, False), "metadata.generation", 5)

        assert finish_of(obj, JOB).finished is False
        assert reason(obj) == "suspended"  # its controller has not resumed it yet
        assert reason(resumed(obj, NOW)) == "wait"


def test_no_policy_and_nothing_known_stop_nothing():
    assert isinstance(decide_stop(started(), JOB, LAST, Context(NO_POLICY)), Ignore)
    assert isinstance(decide_stop(started(), JOB, FIRST, Context(namespace=HOME)), Wait)
