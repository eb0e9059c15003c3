"""What `explain` reports about the active deadline of an object."""

import json
from datetime import timedelta

import pytest
import yaml
from click.testing import CliRunner

from shared.cli.main import main
from shared.cli.objects.object_report import STOP_WORDS, WORDS
from shared.core.archive.gate import CHILD_REASONS
from shared.core.decision.reasons import Reason
from tests.builders import LONG_AGO, ago, annotated, condition, having, job, namespace, pod, stamp

STARTED = LONG_AGO
NOW = STARTED + timedelta(hours=4)
NOTHING = dict.fromkeys(("seconds", "from", "stage", "startedAt", "waitsSince", "dueAt"))


@pytest.fixture
def explain(tmp_path):
    """The report of the last object of a file, as text or JSON."""

    def run(*objects, now=NOW, rule=None, output="json"):
        words = ["explain", "-f", "-", "--now", stamp(now), "-o", output]
        if rule is not None:
            policy = {"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy"}
            rules = [{"name": "ci", "match": {"kinds": ["*"]}, **rule}]
            (tmp_path / "policy.yaml").write_text(yaml.safe_dump({**policy, "rules": rules}))
            words += ["--policy", str(tmp_path / "policy.yaml")]
        result = CliRunner().invoke(main, words, input=yaml.safe_dump_all(objects))
        assert result.exit_code == 0, result.output
        if output == "text":
            return result.stdout.splitlines()
        reported = json.loads(result.stdout)
        return reported[-1] if isinstance(reported, list) else reported

    return run


def at(**after):
    return stamp(STARTED + timedelta(**after))


def running(**annotations):
    return job(**annotations)


ANNOTATION = "ttlafterfinished.dev/active-deadline"
SET = {**NOTHING, "seconds": 21600, "from": ANNOTATION, "stage": "active", "startedAt": at(), "dueAt": at(hours=6)}


def test_explain_reports_a_deadline_that_waits(explain):
    reported = explain(running(active_deadline="6h"))["deadline"]
    assert reported == {**SET, "decision": "wait", "reason": "not-due"}


def test_explain_reports_a_deadline_that_is_over(explain):
    reported = explain(running(active_deadline="6h"), now=STARTED + timedelta(hours=6))["deadline"]
    assert reported == {**SET, "decision": "stop", "reason": "deadline-exceeded"}


def test_explain_reports_the_pending_deadline_of_a_pod_that_no_node_accepts(explain):
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at()}
    obj = pod("Pending", conditions=[waits], started=None, pending_deadline="6h", on_deadline="delete")
    obj = having(obj, "metadata.creationTimestamp", at())

    name = "ttlafterfinished.dev/pending-deadline"
    expected = {**SET, "from": name, "stage": "pending", "startedAt": None, "waitsSince": at()}
    assert explain(obj)["deadline"] == {**expected, "decision": "wait", "reason": "not-due"}
    setting, fate, fix = lines_of(explain, obj)
    assert setting == f"6h to start, by {name}; waits since {at()} (4h ago)"
    assert fate == f"it is deleted at {DUE_AT} (in 2h)"
    assert "--pending-deadline never" in fix


def test_explain_reports_no_deadline_with_nulls(explain):
    none = {**NOTHING, "startedAt": at(), "decision": "ignore", "reason": "no-deadline"}
    assert explain(running())["deadline"] == none
    assert explain(job(complete=ago(0)))["deadline"] == {**NOTHING, "decision": "ignore", "reason": "finished"}
    unknown = {"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "x"}}
    assert explain(unknown)["deadline"] == {**NOTHING, "decision": "ignore", "reason": "unknown-shape"}


def test_explain_reports_a_deadline_of_a_policy_and_a_namespace(explain):
    reported = explain(running(), rule={"activeDeadline": "1h"})["deadline"]
    assert (reported["from"], reported["seconds"], reported["decision"]) == ("policy rule ci", 3600, "stop")
    ci = annotated(namespace("ci"), **{"default-active-deadline": "1d", "max-active-deadline": "5h"})
    reported = explain(ci, running())["deadline"]
    assert (reported["seconds"], reported["dueAt"], reported["decision"]) == (86400, at(hours=5), "wait")


def test_explain_reports_the_deadline_field_of_the_controller(explain):
    reported = explain(having(running(active_deadline="6h"), "spec.activeDeadlineSeconds", 60))["deadline"]
    assert (reported["from"], reported["seconds"]) == ("spec.activeDeadlineSeconds", 60)
    assert (reported["decision"], reported["reason"]) == ("ignore", "enforced-by-controller")


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({"active_deadline": "0"}, "invalid-deadline"),
        ({"active_deadline": "never"}, "never"),
        ({"active_deadline": "6h", "hold": "why"}, "held"),
    ],
)
def test_explain_says_why_a_deadline_is_ignored(explain, annotations, reason):
    reported = explain(running(**annotations))["deadline"]
    assert (reported["decision"], reported["reason"]) == ("ignore", reason)
    assert reported["seconds"] == (21600 if reason == "held" else None)


def stopped():
    """A Job that was stopped at its deadline, as its controller leaves it."""
    obj = job(active_deadline="6h", deadline_exceeded=at(hours=6), stops="1")
    suspended = condition("Suspended", STARTED + timedelta(hours=6, seconds=1))
    return having(having(obj, "spec.suspend", True), "status.conditions", [suspended])


def test_explain_reports_a_stopped_object(explain):
    reported = explain(stopped(), now=STARTED + timedelta(hours=7))["deadline"]
    assert (reported["decision"], reported["reason"]) == ("stopped", "already-stopped")
    assert (reported["seconds"], reported["dueAt"]) == (21600, None)


def lines_of(explain, *objects, **options):
    """The lines about the deadline, without their name, and what to do."""
    found, name = [], ""
    for line in explain(*objects, output="text", **options)[1:]:
        name = line[2:12].strip() or name
        if name in ("deadline", "do"):
            found.append(line[12:])
    return found


STARTED_AT, DUE_AT = at(), at(hours=6)
SETTING = f"6h, by {ANNOTATION}"
RUN_ON = "to let it run without a deadline: `kubectl ttl set jobs.batch/build-42 --deadline never -n ci`"


def test_explain_says_when_and_how_a_running_object_is_stopped(explain):
    assert lines_of(explain, running(active_deadline="6h")) == [
        f"{SETTING}; runs since {STARTED_AT} (4h ago)",
        f'it is stopped at {DUE_AT} (in 2h), by the patch {{"spec": {{"activeDeadlineSeconds": 1}}}}',
        RUN_ON,
    ]
    over = lines_of(explain, running(active_deadline="6h"), now=STARTED + timedelta(hours=7))
    assert over[1].endswith(
        f'by the patch {{"spec": {{"activeDeadlineSeconds": 1}}}}; the deadline was over at {DUE_AT} (1h ago)'
    )


def test_explain_says_that_an_object_is_deleted_at_its_deadline(explain):
    (_, fate, _) = lines_of(explain, running(active_deadline="6h", on_deadline="delete"))
    assert fate == f"it is deleted at {DUE_AT} (in 2h)"


@pytest.mark.parametrize(("action", "done"), [("delete", "deleted"), ("stop", "stopped")])
def test_explain_begins_with_the_deadline_that_is_over(explain, action, done):
    obj = running(active_deadline="6h", on_deadline=action)
    first = explain(obj, output="text", now=STARTED + timedelta(hours=7))[1]
    assert first == f"  decision  {done} now (deadline-exceeded): its deadline is over"
    assert explain(obj, output="text")[1].startswith("  decision  kept (unfinished)")


def test_explain_says_nothing_about_a_deadline_that_no_source_sets(explain):
    assert lines_of(explain, running()) == []


def test_explain_says_that_a_hold_keeps_an_object_from_being_stopped(explain):
    (_, _, fate) = lines_of(explain, running(active_deadline="6h", hold="why"))
    assert fate.startswith("not stopped (held)")
    assert "keeps it from being stopped" in fate


def test_explain_names_the_controller_that_enforces_the_deadline(explain):
    (setting, fate) = lines_of(explain, having(running(), "spec.activeDeadlineSeconds", 18_000))
    assert setting.startswith("5h, by spec.activeDeadlineSeconds; runs since ")
    assert "the Job controller enforces spec.activeDeadlineSeconds" in fate
    assert fate.endswith(f"{at(hours=5)} (in 1h)")


def test_explain_says_how_often_and_when_an_object_was_stopped(explain):
    (setting, times, fate) = lines_of(explain, stopped(), now=STARTED + timedelta(hours=7))
    assert setting == SETTING
    assert times == f"stopped once at its deadline, at {DUE_AT} (1h ago)"
    assert fate.startswith("not stopped (already-stopped)")


def test_explain_says_how_to_fix_an_invalid_deadline(explain):
    (fate, fix) = lines_of(explain, running(active_deadline="-1"))
    assert f"annotation {ANNOTATION}" in fate
    assert fix.endswith("`kubectl ttl set jobs.batch/build-42 --unset-deadline -n ci`")


def test_explain_says_that_a_suspended_object_has_no_running_clock(explain):
    suspended = condition("Suspended", STARTED + timedelta(hours=1))
    obj = having(running(active_deadline="6h"), "spec.suspend", True)
    (setting, fate) = lines_of(explain, having(obj, "status.conditions", [suspended]))
    assert setting == SETTING
    assert fate.startswith("not stopped (suspended)")


def test_each_reason_of_a_stop_has_a_text():
    assert set(WORDS) | set(STOP_WORDS) == set(Reason)
    assert STOP_WORDS.keys() >= {*CHILD_REASONS}
    assert set(STOP_WORDS) - set(WORDS) == {
        Reason.DEADLINE_EXCEEDED,
        Reason.NO_DEADLINE,
        Reason.FINISHED,
        Reason.SUSPENDED,
        Reason.NOT_STARTED,
        Reason.ALREADY_STOPPED,
        Reason.STOP_UNDONE,
        Reason.CANNOT_STOP,
        Reason.ENFORCED_BY_CONTROLLER,
        Reason.INVALID_DEADLINE,
        Reason.START_TIME_UNKNOWN,
    }
