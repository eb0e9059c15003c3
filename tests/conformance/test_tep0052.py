"""TEP-0052 and the cases of Tekton Results' watcher that tell whether a stored run is deleted, under their names.

Each row of TEP is a sentence of tektoncd/community teps/0052-tekton-results-automated-run-resource-cleanup.md, under
its heading. Each row of RESULTS is a rule of tektoncd/results pkg/watcher/reconciler: dynamic/dynamic.go and its
TestReconcile_TaskRun, annotation/annotation.go. "Ours" says a difference on purpose:

- The grace counts from the acknowledgement, as the proposal says; the watcher counts from the completion time.
- The proof is the stored document, read back and compared; the watcher takes the answer of the upsert in memory.
- A run whose archive never answers is kept; the watcher releases it after `store_deadline`.
"""

from datetime import timedelta
from typing import Any

import pytest

from shared.core.archive.decide_archive import ToArchive, decide_archive
from shared.core.decision.decide import Context, Reason
from shared.core.decision.namespaces import namespace_of
from shared.core.policy.policy import Policy
from tests.archives import acknowledged
from tests.builders import LONG_AGO, NOW, ago, annotated, condition, having, kind_rule, namespace, owned_by, stamp
from tests.conformance.answers import answer, seconds

TASKRUN, PIPELINERUN = kind_rule("taskruns.tekton.dev"), kind_rule("pipelineruns.tekton.dev")
TEKTON = "tekton.dev/v1"
GRACE = 60
NAME = "default/results/1/records/2"


def run(*, done: Any = "True", at: Any = None, kind: str = "TaskRun", ttl: str | None = "0s", **said: str) -> Any:
    """A run that is done, a week ago if no time is given."""
    finished_at = at or LONG_AGO
    conditions = [condition("Succeeded", finished_at, status=done or "Unknown")]
    status: dict[str, Any] = {"startTime": stamp(LONG_AGO), "conditions": conditions}
    status |= {"completionTime": stamp(finished_at)} if done else {}
    metadata: dict[str, Any] = {"name": "build-1", "namespace": "ci", "uid": "run-uid", "resourceVersion": "7"}
    metadata["creationTimestamp"] = stamp(LONG_AGO)
    obj = {"apiVersion": TEKTON, "kind": kind, "metadata": metadata, "status": status}
    return annotated(obj, **({"ttl": ttl} if ttl else {}), **said)


def marked(obj: Any, written_at: Any = None, **annotations: str) -> Any:
    """The run as the watcher marks it, by server-side apply."""
    named = {f"results.tekton.dev/{name}": value for name, value in annotations.items()}
    all_of_them = {**obj["metadata"].get("annotations", {}), **named}
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{name}": {} for name in named}}}
    entry = {"manager": "tekton-results-watcher", "operation": "Apply", "fieldsV1": fields}
    obj = having(obj, "metadata.annotations", all_of_them)
    return having(obj, "metadata.managedFields", [{**entry, "time": stamp(written_at or NOW)}])


def policy(to: str = "main", match: Any = None, **archive: Any) -> Policy:
    """The flags of the watcher as a policy: runs are archived, and kept for the grace after that."""
    archives = {"main": {"url": "file:///archive"}, "tekton": {"native": "tekton-results"}}
    kinds = {"kinds": ["taskruns", "pipelineruns"], **(match or {})}
    rule = {"name": "results", "match": kinds, "archive": {"to": to, "grace": f"{GRACE}s", **archive}}
    return Policy.model_validate({"archives": archives, "rules": [rule]})


def answered(obj: Any, *, to: str = "main", at: Any = None, **parts: Any) -> Any:
    """The answer about a run that its archive acknowledged at an instant; None for one that it did not."""
    rule = PIPELINERUN if obj["kind"] == "PipelineRun" else TASKRUN
    parts = {"policy": policy(to), "owner_unfinished": False, **parts}
    return answer(
        obj, rule, space=parts.pop("space", namespace_of(namespace())), archived=acknowledged(obj, at), **parts
    )


OPTED_OUT = namespace_of(namespace(archive="false"))
OPTED_IN = namespace_of(namespace(archive="main"))
ONLY_FOO = policy(match={"labels": {"matchLabels": {"foo": "bar"}}})
NO_RULE = Policy.model_validate({"archives": {"main": {"url": "file:///archive"}}, "rules": []})

TEP: dict[str, tuple[Any, Any]] = {
    "Requirements: deleted as soon as it can be done safely: stored, and the grace is over": (
        answered(run(), at=ago(GRACE)),
        seconds(0),
    ),
    "Requirements: we have confirmed the data is stored durably elsewhere: not confirmed": (
        answered(run()),
        Reason.NOT_ARCHIVED,
    ),
    "Requirements: deletion occurs with some configurable delay": (answered(run(), at=NOW), seconds(GRACE)),
    "Requirements: operators opt in: a run that no rule archives goes by its TTL alone": (
        answered(run(at=ago(5)), policy=NO_RULE),
        seconds(-5),
    ),
    "Requirements: operators opt out of deletion: no TTL": (answered(run(ttl=None), at=LONG_AGO), Reason.NO_TTL),
    "Delete Runs when complete: 1) the Run has completed: it has not": (
        answered(run(done=None), at=LONG_AGO),
        Reason.UNFINISHED,
    ),
    "Delete Runs when complete: 2) the Run Record has been successfully stored: it has not": (
        answered(run()),
        Reason.NOT_ARCHIVED,
    ),
    "Grace Period: since the Record's last update time, not since the completion": (
        answered(run(at=LONG_AGO), at=ago(GRACE - 1)),
        seconds(1),
    ),
    "Grace Period: if it has not been met, re-enqueue": (answered(run(), at=ago(10)), seconds(GRACE - 10)),
    "Early Deletion: a failed run too": (answered(run(done="False"), at=ago(1)), seconds(GRACE - 1)),
    "Early Deletion: disable it completely: `never`": (answered(run(ttl="never"), at=LONG_AGO), Reason.NEVER),
    "Watcher Outages: longer than the grace: the timer starts when the record is stored": (
        answered(run(at=ago(86_400)), at=NOW),
        seconds(GRACE),
    ),
    "Watcher Outages: while it lasts, nothing is deleted": (answered(run(at=ago(86_400 * 30))), Reason.NOT_ARCHIVED),
    "Future Work: per namespace: opted out": (answered(run(at=ago(5)), space=OPTED_OUT), seconds(-5)),
    "Future Work: per namespace: opted in": (
        answered(run(), space=OPTED_IN, policy=NO_RULE),
        Reason.NOT_ARCHIVED,
    ),
    "Future Work: per resource: opted out": (answered(run(at=ago(5), archive="false")), seconds(-5)),
    "Future Work: per resource: opted in": (
        answered(run(archive="true"), policy=NO_RULE),
        Reason.NOT_ARCHIVED,
    ),
    "ours: an opt-out that cannot be read keeps the run": (answered(run(archive="no")), Reason.INVALID_ARCHIVE),
    "ours: a TTL that ends after the grace takes effect": (
        answered(run(at=ago(10), ttl="1h"), at=ago(5)),
        seconds(3590),
    ),
}


@pytest.mark.parametrize(("reported", "expected"), TEP.values(), ids=TEP)
def test_tep0052_sentence_holds(reported, expected):
    assert reported == expected


def test_tep0052_record_of_another_version_does_not_count():
    """The proposal has one record of a run, updated in place; ours has one for each version."""
    old = run()
    changed = having(old, "metadata.resourceVersion", "8")

    reported = answer(
        changed, TASKRUN, space=namespace_of(namespace()), policy=policy(), archived=acknowledged(old, LONG_AGO)
    )

    assert reported == Reason.ARCHIVE_UNREAD


DONE = run(at=ago(2))
OF_A_DEPLOYMENT = owned_by(run(), "Deployment", api_version="apps/v1")
OF_A_PIPELINERUN = owned_by(run(), "PipelineRun", api_version=TEKTON)

RESULTS: dict[str, tuple[Any, Any]] = {
    "TestReconcile_TaskRun: delete object once grace period elapses: before": (answered(DONE, at=NOW), seconds(GRACE)),
    "TestReconcile_TaskRun: delete object once grace period elapses: after": (
        answered(run(), at=ago(GRACE + 2)),
        seconds(-2),
    ),
    "TestReconcile_TaskRun: delete failed runs": (answered(run(done="False"), at=ago(GRACE + 2)), seconds(-2)),
    "TestReconcile_TaskRun: label selector: does not match: no archive of the rule, and its own TTL": (
        answered(having(DONE, "metadata.labels", {"foo": "other"}), policy=ONLY_FOO),
        seconds(-2),
    ),
    "TestReconcile_TaskRun: label selector: matches": (
        answered(having(DONE, "metadata.labels", {"foo": "bar"}), policy=ONLY_FOO),
        Reason.NOT_ARCHIVED,
    ),
    "TestReconcile_TaskRun: readiness callback: false: requeue": (answered(DONE), Reason.NOT_ARCHIVED),
    "TestReconcile_TaskRun: readiness callback: true: deleted": (answered(run(), at=ago(GRACE)), seconds(0)),
    "TestReconcile_TaskRun: owner refs, check disabled: deleted": (
        answered(annotated(OF_A_DEPLOYMENT, owner="ignore"), at=ago(GRACE), owner_unfinished=True),
        seconds(0),
    ),
    "TestReconcile_TaskRun: owner PipelineRun, check disabled: not deleted": (
        answered(OF_A_PIPELINERUN, at=LONG_AGO, owner_unfinished=True),
        Reason.OWNER_UNFINISHED,
    ),
    "TestReconcile_TaskRun: owner refs, check enabled: not deleted": (
        answered(OF_A_DEPLOYMENT, at=LONG_AGO, owner_unfinished=True),
        Reason.OWNER_UNFINISHED,
    ),
    "annotation.go: stored=true, when the watcher wrote it": (
        answered(marked(run(), ago(10), stored="true"), to="tekton"),
        seconds(GRACE - 10),
    ),
    "annotation.go: stored=true, and the grace is over": (
        answered(marked(run(), ago(GRACE + 3), stored="true"), to="tekton"),
        seconds(-3),
    ),
    "annotation.go: stored=false while the run works, read after its end": (
        answered(marked(run(), LONG_AGO, stored="false", record=NAME), to="tekton"),
        Reason.NOT_ARCHIVED,
    ),
    "annotation.go: stored is missing, and so is the record: requeue": (
        answered(run(), to="tekton"),
        Reason.NOT_ARCHIVED,
    ),
    "annotation.go: stored has another value": (
        answered(marked(run(), LONG_AGO, stored="True"), to="tekton"),
        Reason.NOT_ARCHIVED,
    ),
    "reconciler.go: logs API enabled, so stored never appears: the record, after store_deadline": (
        answered(marked(run(at=ago(600 + GRACE)), ago(600 + GRACE), record=NAME), to="tekton"),
        seconds(0),
    ),
    "reconciler.go: logs API enabled: before store_deadline the last state may still be stored": (
        answered(marked(run(at=ago(10)), ago(10), record=NAME), to="tekton"),
        seconds(600 - 10 + GRACE),
    ),
    "reconciler.go: an empty record is none": (
        answered(marked(run(), LONG_AGO, record=""), to="tekton"),
        Reason.NOT_ARCHIVED,
    ),
    "ours: store_deadline passed and nothing is stored: released there, kept here": (
        answered(run(at=LONG_AGO), to="tekton"),
        Reason.NOT_ARCHIVED,
    ),
    "ours: the outcome of the grace is the same after an outage: at once there, after the grace here": (
        answered(marked(run(at=ago(86_400)), NOW, stored="true"), to="tekton"),
        seconds(GRACE),
    ),
}


@pytest.mark.parametrize(("reported", "expected"), RESULTS.values(), ids=RESULTS)
def test_tekton_results_case_matches(reported, expected):
    assert reported == expected


def decided(obj: Any, to: str = "main", **parts: Any) -> Any:
    """What `archive` does with a run at its completion."""
    context = Context(policy(to, **parts), namespace_of(namespace()))
    rule = PIPELINERUN if obj["kind"] == "PipelineRun" else TASKRUN
    return decide_archive(obj, rule, NOW, context)


STORING: dict[str, tuple[Any, Reason]] = {
    "TestReconcile_TaskRun: annotations disabled: stored in the API": (decided(run(ttl=None)), Reason.ARCHIVE_UNREAD),
    "Test_TaskRun: not done: stored while it works there, at its end here": (
        decided(run(done=None)),
        Reason.UNFINISHED,
    ),
    "TestReconcile_TaskRun: annotations enabled: the watcher stores and marks, so we store nothing": (
        decided(run(), "tekton"),
        Reason.NOT_ARCHIVED,
    ),
    "disable_storing_incomplete_runs: a run that is done is stored": (
        decided(run(done="False")),
        Reason.ARCHIVE_UNREAD,
    ),
    "ours: a run that is held is left alone": (decided(run(hold="post-mortem")), Reason.HELD),
}


@pytest.mark.parametrize(("decision", "reason"), STORING.values(), ids=STORING)
def test_tekton_results_storing_matches(decision, reason):
    assert decision.reason == reason


def test_run_is_stored_by_us_only_if_no_other_archiver_does():
    assert isinstance(decided(run()), ToArchive)
    assert not isinstance(decided(run(), "tekton"), ToArchive)


def test_pipelinerun_is_stored_with_the_children_that_the_watcher_waits_for():
    """IsReadyForDeletionFunc: each TaskRun and CustomRun of a PipelineRun carries childReadyForDeletion."""
    wanted = decided(run(kind="PipelineRun")).archiving

    assert wanted.children
    assert {"TaskRun", "CustomRun"} <= {child.kind for child in PIPELINERUN.children}


def test_logs_are_stored_only_if_the_policy_asks_for_them():
    """logs_api is off by default there, and its stream does not delay the deletion; here logs come first."""
    assert not decided(run()).archiving.logs
    assert decided(run(), logs=True).archiving.logs
    assert decided(run()).archiving.grace == timedelta(seconds=GRACE)
