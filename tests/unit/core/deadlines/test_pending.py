"""The specification of pending deadlines: which Pods have never started, since when they wait, and what is done."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from shared.core.deadlines.deadline import Stage
from shared.core.deadlines.decide_stop import Stop, decide_stop, may_stop
from shared.core.decision.decide import Context, Wait
from shared.core.decision.namespaces import namespace_of, plain_namespace
from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import Policy
from shared.usecases.reports import describe_excess, find_stop_event, is_reported_at_once
from shared.usecases.timers import is_stop_near
from tests.builders import JOB, NOW, POD, ago, annotated, created, having, job, namespace, owned_by, stamp, without

HOME = plain_namespace("ci")
RUNNING: dict[str, Any] = {"running": {"startedAt": stamp(ago(50))}}
ENDED: dict[str, Any] = {"terminated": {"exitCode": 0, "finishedAt": stamp(ago(20))}}
PULLING: dict[str, Any] = {"waiting": {"reason": "ImagePullBackOff"}}
DELETES = {"on_deadline": "delete"}
BEFORE = ago(100)


def scheduled(at: datetime | None, status: str = "True", reason: str = "") -> dict[str, Any]:
    return {"type": "PodScheduled", "status": status, "reason": reason, "lastTransitionTime": stamp(at) if at else None}


def unschedulable(at: datetime | None = BEFORE, **annotations: Any) -> Any:
    """A Pod that no node accepts; its pending deadline is a minute, and it is deleted then."""
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "ci", "uid": "1"}, "spec": {}}
    obj["status"] = {"phase": "Pending", "conditions": [scheduled(at, "False", "Unschedulable")]}
    return annotated(created(obj, ago(100)), **({"pending_deadline": "60s"} | DELETES | annotations))


def pulling(since: datetime = BEFORE, *, containers: Any = (PULLING,), init: Any = (), **annotations: Any) -> Any:
    """A Pod on a node of which no container has run."""
    obj = having(unschedulable(**annotations), "status.startTime", stamp(since))
    statuses = {"containerStatuses": containers, "initContainerStatuses": init}
    listed = {
        name: [{"name": "main", "state": state, "lastState": {}} for state in all_] for name, all_ in statuses.items()
    }
    obj["status"] |= listed | {"conditions": [scheduled(since)]}
    return obj


def decided(obj: Any, rule: KindRule = POD, now: datetime = NOW, **known: Any) -> Any:
    return decide_stop(obj, rule, now, Context(**{"namespace": HOME} | known))


def reason(obj: Any, rule: KindRule = POD, **known: Any) -> str:
    """The reason; `stop` and `wait` for the two that act."""
    decision = decided(obj, rule, **known)
    return {Stop: "stop", Wait: "wait"}.get(type(decision), str(decision.reason))


def policy(*settings: dict[str, Any], kinds: str = "pods") -> Policy:
    given = [{"name": f"rule-{n}", "match": {"kinds": [kinds]}} | one for n, one in enumerate(settings)]
    return Policy.model_validate({"rules": given})


class TestStart:
    @pytest.mark.parametrize(
        "status",
        [
            {"containerStatuses": [{"state": RUNNING}]},
            {"containerStatuses": [{"state": PULLING}, {"state": RUNNING}]},
            {"containerStatuses": [{"state": ENDED}]},
            {"containerStatuses": [{"state": PULLING, "lastState": ENDED}]},
            {"containerStatuses": [{"state": PULLING}], "initContainerStatuses": [{"state": ENDED}]},
            {"containerStatuses": [{"state": PULLING}], "initContainerStatuses": [{"state": RUNNING}]},
            {"initContainerStatuses": [{"state": PULLING, "lastState": ENDED}]},
            {"containerStatuses": [{"state": PULLING}], "ephemeralContainerStatuses": [{"state": RUNNING}]},
            {"containerStatuses": [{"state": PULLING, "restartCount": 1}]},
            {"initContainerStatuses": [{"state": {}, "restartCount": 2}]},
            {"containerStatuses": [{"state": {"running": {}}}]},
            {"phase": "Running"},
            {"phase": "Unknown"},
            {"phase": None},
        ],
        ids=[
            "runs",
            "one of two runs",
            "has ended",
            "ended before it pulls again",
            "an init container has ended",
            "an init container runs",
            "an init container restarts",
            "a person debugs it",
            "the kubelet lost its end",
            "the kubelet lost the end of an init container",
            "no instant",
            "phase Running",
            "its node is lost",
            "no phase",
        ],
    )
    def test_pod_of_which_a_container_has_ever_run_is_not_pending(self, status):
        obj = pulling()
        obj["status"] |= status

        decision = decided(obj, now=NOW + timedelta(days=1))
        assert (decision.reason, decision.facts.active.stage) == ("no-deadline", Stage.ACTIVE)

    @pytest.mark.parametrize("state", [{}, PULLING, {"waiting": {"reason": "ContainerCreating"}}, None])
    @pytest.mark.parametrize("kind", ["containers", "init"])
    def test_pod_of_which_no_container_has_run_is_pending(self, state, kind):
        obj = pulling(containers=(state,)) if kind == "containers" else pulling(init=(state,))

        assert reason(obj) == "stop"

    @pytest.mark.parametrize("field", ["containerStatuses", "initContainerStatuses"])
    def test_pod_of_unknown_shape_is_left_alone(self, field):
        assert reason(having(pulling(), f"status.{field}", "running")) == "unknown-shape"


class TestClock:
    @pytest.mark.parametrize(
        ("obj", "since"),
        [
            (unschedulable(ago(90)), ago(90)),
            (unschedulable(ago(101)), ago(100)),  # the scheduler's clock is behind
            (pulling(ago(70)), ago(70)),
            (without(pulling(ago(70)), "status.startTime"), ago(70)),  # bound, and no kubelet has seen it
            (pulling(ago(500)), ago(100)),  # the kubelet's clock is behind
        ],
        ids=["no node", "before its creation", "on a node", "bound", "kubelet before its creation"],
    )
    def test_clock_starts_when_no_node_is_found_and_again_when_a_node_accepts_the_pod(self, obj, since):
        decision = decided(obj)

        active = decision.facts.active
        assert (active.counts_from, active.started_at, active.stage) == (since, None, Stage.PENDING)
        assert (type(decision), decision.facts.due_at) == (Stop, since + timedelta(seconds=60))

    @pytest.mark.parametrize(("seconds", "expected"), [(59.9, "wait"), (60.0, "stop")])
    def test_pod_is_deleted_exactly_at_its_pending_deadline(self, seconds, expected):
        assert reason(unschedulable(), now=ago(100) + timedelta(seconds=seconds)) == expected

    @pytest.mark.parametrize(
        "obj",
        [
            having(unschedulable(), "status.conditions", []),
            unschedulable(None),
            having(unschedulable(), "status.conditions", [{"type": "PodScheduled", "status": "False"}]),
            having(unschedulable(), "status.conditions", [scheduled(ago(90), "Unknown")]) | {"metadata": {}},
        ],
        ids=["no scheduler has seen it", "it had scheduling gates", "no time", "no creation"],
    )
    def test_pod_is_kept_if_it_is_unknown_since_when_it_waits(self, obj):
        assert reason(annotated(obj, pending_deadline="60s", on_deadline="delete")) == "start-time-unknown"

    @pytest.mark.parametrize("gate", ["kueue.x-k8s.io/admission", "ttlafterfinished.dev/restored"])
    def test_pod_with_a_scheduling_gate_waits_on_purpose(self, gate):
        decision = decided(having(unschedulable(), "spec.schedulingGates", [{"name": gate}]))

        assert (decision.reason, decision.facts.due_at) == ("suspended", None)
        assert decision.facts.active.stage is Stage.PENDING


class TestPrecedence:
    @pytest.mark.parametrize(
        ("obj", "rules", "place", "expected"),
        [
            (unschedulable(pending_deadline="never"), [{"pendingDeadline": "1s"}], {}, "never"),
            (unschedulable(pending_deadline="1h"), [{"pendingDeadline": "1s"}], {}, "wait"),
            (unschedulable(pending_deadline="1h"), [], {"default_pending_deadline": "1s"}, "wait"),
            (unschedulable(pending_deadline=None), [{"pendingDeadline": "1h"}, {"pendingDeadline": "1s"}], {}, "wait"),
            (unschedulable(pending_deadline=None), [], {"default_pending_deadline": "1s"}, "stop"),
            (unschedulable(pending_deadline=None), [{"activeDeadline": "1s"}], {}, "not-started"),
            (unschedulable(), [], {"max_active_deadline": "1s", "default_active_deadline": "1s"}, "stop"),
            (unschedulable(pending_deadline="1h"), [], {"max_active_deadline": "1s"}, "wait"),
            (unschedulable(hold="why"), [], {}, "held"),
            (unschedulable(), [], {"exempt": "true"}, "exempt"),
        ],
    )  # fmt: skip
    def test_first_source_that_sets_a_pending_deadline_takes_precedence(self, obj, rules, place, expected):
        home = namespace_of(namespace(**place))
        assert reason(cleared(obj), policy=policy(*rules), namespace=home) == expected

    def test_pending_deadline_replaces_the_active_one_until_the_start(self):
        """A Pod that pulls its image for longer than its active deadline: only the pending deadline ends it."""
        both = pulling(active_deadline="10s", pending_deadline="1h")
        started = having(both, "status.phase", "Running")

        assert [decided(obj).facts.active.stage for obj in (both, started)] == [Stage.PENDING, Stage.ACTIVE]
        assert [reason(obj) for obj in (both, started)] == ["wait", "stop"]
        alone = annotated(pulling(active_deadline="10s"), pending_deadline=None)
        assert decided(cleared(alone)).facts.active.stage is Stage.ACTIVE

    @pytest.mark.parametrize("value", ["0", "0s", "", "soon", "-1s", None])
    def test_malformed_value_leaves_the_pod_alone_and_names_the_annotation(self, value):
        decision = decided(
            having(unschedulable(), "metadata.annotations", {"ttlafterfinished.dev/pending-deadline": value})
        )

        assert decision.reason == "invalid-deadline"
        assert decision.facts.problem.startswith("annotation ttlafterfinished.dev/pending-deadline: expected ")

    def test_annotation_on_a_kind_that_does_not_show_its_start_is_invalid(self):
        decision = decided(having(job(pending_deadline="1h"), "status.startTime", stamp(ago(1))), JOB)

        assert decision.reason == "invalid-deadline"
        assert decision.facts.problem == (
            "annotation ttlafterfinished.dev/pending-deadline: "
            "expected a kind whose objects show that they have never started, such as Pod, got a Job"
        )

    def test_policy_rule_for_all_kinds_sets_it_only_for_those_that_have_it(self):
        for_all = policy({"pendingDeadline": "1s"}, kinds="*")
        started = having(job(), "status.startTime", stamp(ago(100)))

        assert reason(started, JOB, policy=for_all) == "no-deadline"
        assert not may_stop(started, JOB, Context(for_all, HOME))

    def test_namespace_that_was_not_read_may_set_one(self):
        """Also if the active deadline alone would leave the Pod alone."""
        obj = cleared(annotated(pulling(active_deadline="never"), pending_deadline=None))

        decision = decided(obj, namespace=None)
        assert (decision.reason, decision.facts.active.counts_from) == ("namespace-unread", ago(100))
        waits = cleared(annotated(unschedulable(), pending_deadline=None))
        assert decided(waits, namespace=None).facts.active.counts_from == ago(100)
        assert is_stop_near(waits, POD, Context(), ago(80))
        assert not is_stop_near(waits, POD, Context(), NOW)
        defaults = Context(namespace=namespace_of(namespace(default_pending_deadline="1h")))
        assert (may_stop(waits, POD, defaults), may_stop(job(), JOB, defaults)) == (True, False)


class TestAction:
    def test_pod_on_a_node_is_stopped_by_its_deadline_field(self):
        assert reason(pulling(on_deadline="stop")) == "stop"
        assert decided(pulling(on_deadline="stop")).facts.active.deletes is False

    def test_pod_without_a_node_can_only_be_deleted(self):
        decision = decided(unschedulable(on_deadline="stop"))

        assert decision.reason == "cannot-stop"
        assert decision.facts.problem.endswith("expected on-deadline: delete")
        event = find_stop_event(POD, unschedulable(), decision)
        assert event is not None
        assert event.reason == "CannotStop"
        assert not is_reported_at_once(decision, unschedulable(), POD)  # it is soon on a node

    @pytest.mark.parametrize("action", ["stop", "delete"])
    def test_deadline_field_of_a_pod_on_a_node_is_left_to_the_kubelet(self, action):
        assert (
            reason(having(pulling(on_deadline=action), "spec.activeDeadlineSeconds", 3600)) == "enforced-by-controller"
        )

    @pytest.mark.parametrize("which", ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"])
    def test_container_that_the_kubelet_calls_started_is_no_wait(self, which):
        """Also if its state was lost."""
        status = [{"name": "main", "state": {"waiting": {}}, "lastState": {}, "started": True}]

        assert reason(having(pulling(), f"status.{which}", status)) != "stop"

    @pytest.mark.parametrize("status", ["Unknown", None])
    def test_condition_that_no_scheduler_wrote_starts_no_clock(self, status):
        assert reason(having(unschedulable(), "status.conditions", [scheduled(ago(1), status)])) == "start-time-unknown"

    def test_pod_with_the_mark_of_a_stop_is_not_stopped_again(self):
        marked = annotated(pulling(on_deadline="stop"), deadline_exceeded=ago(5), stops="1")

        assert reason(marked) == "stop-undone"
        assert reason(having(marked, "spec.activeDeadlineSeconds", 1)) == "already-stopped"

    @pytest.mark.parametrize(
        ("rules", "own", "expected"),
        [
            ([], "60s", "stop"),
            ([{"pendingDeadline": "60s", "onDeadline": "delete"}], None, "owner-unfinished"),
            ([{"pendingDeadline": "60s", "onDeadline": "delete", "onOwned": "delete"}], None, "stop"),
        ],
    )
    def test_unfinished_owner_keeps_the_pod_unless_it_asks_itself(self, rules, own, expected):
        obj = owned_by(cleared(unschedulable(pending_deadline=own)), "ReplicaSet", api_version="apps/v1")

        assert reason(obj, policy=policy(*rules), owner_unfinished=True) == expected

    def test_rule_with_audit_only_reports_the_pod(self):
        obj = cleared(unschedulable(pending_deadline=None))
        rules = policy({"pendingDeadline": "60s", "audit": True})

        assert reason(obj, policy=rules) == "audit-only"

    def test_report_says_that_the_pod_waited_for_its_start(self):
        why = describe_excess(decided(unschedulable()).facts)

        assert why == "waited for its start for 1m, its pending deadline by ttlafterfinished.dev/pending-deadline"


def cleared(obj: Any) -> Any:
    """The object without the annotations whose value is null."""
    annotations = {name: value for name, value in obj["metadata"]["annotations"].items() if value is not None}
    return having(obj, "metadata.annotations", annotations)
