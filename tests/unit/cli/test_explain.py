"""What `explain` shows beside the decision: owner, hold, other cleaners, finalizers, unknown annotations."""

import json
import subprocess
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from shared.cli.main import main
from shared.cli.objects.related import NO_RULE
from shared.core.ttl.annotations import OF_NAMESPACES, OF_OBJECTS
from shared.core.values.objects import ANNOTATION_DOMAIN
from tests.builders import COMMAND, ago, annotated, having, job, namespace, owned_by, pod, runtime, trainjob

NEVER = {
    "apiVersions": ["example.com/v1"],
    "kind": "Service",
    "plural": "services",
    "neverFinishes": "it serves for good; what it runs is deleted with it",
    "dependents": "free",
}
OPT_IN = {
    "apiVersions": ["example.com/v1"],
    "kind": "Backup",
    "plural": "backups",
    "finished": {"field": "status.phase", "values": {"Done": "succeeded"}},
    "finishedAt": ["managed-fields"],
    "optIn": "deleting it deletes the data",
    "notes": "A backup is data.",
}
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "uid": "owner-uid"}}
SERVICE = {"apiVersion": "example.com/v1", "kind": "Service", "metadata": {"name": "web", "uid": "owner-uid"}}
BACKUP = {
    "apiVersion": "example.com/v1",
    "kind": "Backup",
    "metadata": {"name": "b"},
    "status": {"phase": "Done"},
}


@pytest.fixture
def explain(tmp_path):
    """The lines of the last object of a file."""
    for rule in (NEVER, OPT_IN):
        (tmp_path / f"{rule['plural']}.yaml").write_text(yaml.safe_dump(rule))

    def run(*objects, output="text"):
        words = ["explain", "-f", "-", "--kinds-dir", str(tmp_path), "-o", output]
        result = CliRunner().invoke(main, words, input=yaml.safe_dump_all(objects))
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout) if output == "json" else result.stdout.splitlines()

    return run


def test_explain_shows_only_lines_that_have_content(explain):
    assert {line.split()[0] for line in explain(job())[1:]} == {"finished", "ttl", "due", "decision"}


def test_explain_names_an_overridden_annotation_and_its_fix(explain):
    (line,) = [one for one in explain(job(ttl=60, hold="why")) if one.startswith("  overridden")]
    assert "spec.ttlSecondsAfterFinished: 60" in line
    assert "kubectl ttl hold" in line
    assert explain(job(ttl=60, hold="why"), output="json")["overriddenBy"] == "spec.ttlSecondsAfterFinished"


def test_explain_reports_an_unknown_annotation_with_the_valid_ones(explain):
    reported = f"unknown annotation ttlafterfinished.dev/tttl: expected one of {', '.join(OF_OBJECTS)}"
    assert [line for line in explain(job(tttl="1h")) if "unknown" in line] == [f"  problem   {reported}"]
    assert explain(job(tttl="1h"), output="json")["unknownAnnotations"] == [reported]


def test_explain_reports_an_unknown_annotation_of_the_namespace(explain):
    ci = namespace("ci", default_ttll="1d", max_ttl="30d")
    (reported,) = explain(ci, job(), output="json")["unknownAnnotations"]
    assert reported == (
        "unknown annotation ttlafterfinished.dev/default-ttll of namespace ci: "
        f"expected one of {', '.join(OF_NAMESPACES)}"
    )


def test_explain_reports_no_known_annotation(explain):
    known = annotated(job(), **dict.fromkeys(OF_OBJECTS, "1h"))
    ci = annotated(namespace("ci"), **dict.fromkeys((*OF_NAMESPACES, *OF_OBJECTS), "1h"))
    assert explain(ci, known, output="json")["unknownAnnotations"] == []
    elsewhere = having(job(), "metadata.annotations", {"example.com/tttl": "1h"})
    assert explain(elsewhere, output="json")["unknownAnnotations"] == []


def test_explain_shows_the_reason_of_a_hold_and_the_saved_ttl(explain):
    assert "  hold      why" in explain(job(hold="why"))
    assert "  hold      no reason given" in explain(job(hold=""))
    kept = '{"spec.ttlSecondsAfterFinished": 60}'
    assert f"  hold      why; a release puts back {kept}" in explain(job(hold="why", held_ttl=kept))


def test_explain_lists_other_cleaners_and_finalizers_in_one_column(explain):
    obj = owned_by(job(ttl=60), "CronJob")
    obj["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    lines = explain(having(obj, "metadata.finalizers", ["foregroundDeletion", "example.com/x"]))
    at = next(number for number, line in enumerate(lines) if line.startswith("  others"))
    assert lines[at].startswith("  others    kube-controller-manager: acts on")
    others = [line for line in lines if line.startswith(("  others", " " * 12))]
    assert any(line.strip().startswith("Helm: ") for line in others)
    assert any(line.startswith("  finalizer foregroundDeletion: ") for line in lines)
    assert any(line.startswith("            example.com/x: unknown finalizer") for line in lines)


@pytest.mark.parametrize(
    ("owner", "state"),
    [
        (job(uid="owner-uid", name="owner"), "has not finished"),
        (job(uid="owner-uid", name="owner", complete=ago(0)), "has finished at 2026-03-14T15:09:26Z, succeeded"),
        (SERVICE, "never finishes; its dependents may be deleted"),
        (REPLICA_SET, "never finishes; its finished pods may be deleted, since it has replaced them"),
        (pod(), "not in this file"),
        (having(REPLICA_SET, "apiVersion", "example.com/v1"), f"not in this file; {NO_RULE}"),
        (
            having(REPLICA_SET, "metadata.uid", "another"),
            "not in this file; never finishes; its finished pods may be deleted, since it has replaced them",
        ),
    ],
)
def test_explain_names_the_owner_and_its_state(explain, owner, state):
    owned = owned_by(pod(name="x"), owner["kind"], api_version=owner["apiVersion"])
    reported = explain(owner, owned, output="json")[-1]
    assert reported["owner"] == {"kind": owner["kind"], "name": "owner", "state": state}


def test_explain_says_why_a_kind_never_finishes(explain):
    assert "  kind      it serves for good; what it runs is deleted with it" in explain(SERVICE)


def test_explain_shows_how_to_opt_in_if_no_source_sets_a_ttl(explain):
    lines = explain(BACKUP)
    assert any(one.startswith("  opt-in    deleting it deletes the data; it is deleted only if") for one in lines)
    assert "  do        to delete it 1h after it finished: `kubectl ttl set backups.example.com/b 1h`" in lines
    assert "  opt-in    deleting it deletes the data" in explain(annotated(BACKUP, ttl="1h"))
    assert "  note      A backup is data." in explain(BACKUP)


@pytest.mark.parametrize(
    "writes", [[], [{"subresource": "status", "time": "2026-01-02T03:10:00Z"}]], ids=["unknown", "write of the status"]
)
def test_explain_reports_a_finish_before_the_creation_beside_the_one_that_counts(explain, writes):
    early = job(complete="2026-01-02T03:00:00Z", ttl=3600)
    early["metadata"] |= {"creationTimestamp": "2026-01-02T03:05:00Z", "managedFields": writes}
    early["status"].pop("startTime", None)
    lines = explain(early)
    about = next(number for number, line in enumerate(lines) if line.startswith("  finished"))
    assert ("2026-01-02T03:10:00Z" if writes else "finish time unknown") in lines[about]
    assert "its status has 2026-01-02T03:00:00Z, which is before its creation" in lines[about + 1]


def test_explain_reports_no_finish_before_the_creation_of_usual_objects(explain):
    for one in (job(complete=ago(60)), pod(), trainjob(complete=ago(60)), job(failed=ago(9))):
        assert "is ignored" not in "".join(explain(one))


def test_explain_begins_with_decision_reason_and_fix(explain):
    held = explain(job(complete=ago(60), ttl_succeeded="1s", hold="looking"))
    assert [line.split()[0] for line in held[1:4]] == ["decision", "hold", "do"]
    assert held[3] == "  do        to end the hold: `kubectl ttl release jobs.batch/build-42 -n ci`"
    malformed = explain(job(complete=ago(60), ttl="soon"))
    assert [line.split()[0] for line in malformed[1:4]] == ["decision", "problem", "do"]


def test_explain_names_a_saved_ttl_without_a_hold_and_its_fix(explain):
    kept = '{"spec.ttlSecondsAfterFinished": 60}'
    lines = explain(job(complete=ago(60), held_ttl=kept))
    (saved,) = [one for one in lines if one.startswith("  saved  ")]
    assert "spec.ttlSecondsAfterFinished: 60" in saved
    (cure,) = [one for one in lines if one.startswith("  do  ")]
    assert "kubectl ttl release jobs.batch/" in cure


@pytest.mark.parametrize("hold", [{}, {"hold": "why"}])
def test_explain_advises_to_remove_an_unreadable_saved_ttl_first(explain, hold):
    lines = explain(job(complete=ago(60), held_ttl="{", **hold))
    (cure,) = [one for one in lines if one.startswith("  do  ")]
    assert "unreadable annotation: `kubectl annotate jobs.batch/build-42 ttlafterfinished.dev/held-ttl- -n ci`" in cure
    assert ("kubectl ttl release" if hold else "kubectl ttl set") in cure
    assert any("annotation ttlafterfinished.dev/held-ttl: expected JSON" in one for one in lines)


def test_explain_does_not_call_an_object_kept_that_its_own_controller_deletes(explain):
    lines = explain(job(complete=ago(60), ttl=3600, hold="why"))
    assert lines[1].startswith("  decision  not deleted by ttl-after-finished (held)")
    (reported,) = [one for one in lines if one.startswith("  overridden")]
    assert "by that field it is due at 2026-03-14T16:08:26Z" in reported


def test_explain_names_the_missing_condition_of_an_unfinished_object_as_text_and_json(explain):
    assert "  finished  no: no condition Complete or Failed with status True" in explain(job())
    reported = explain(job(), output="json")
    assert reported["unfinished"] == {
        "why": "no condition Complete or Failed with status True",
        "expected": ["condition Complete is True", "condition Failed is True"],
        "found": [],
    }
    assert explain(job(complete=ago(1)), output="json")["unfinished"] is None


@pytest.mark.parametrize("levels", [200, 7_000, 50_000])
def test_explain_rejects_a_document_that_is_nested_too_deeply(levels, tmp_path):
    """In a process: what overflows the C stack ends it with a negative code."""
    path = tmp_path / "deep.json"
    path.write_text('{"kind":"Job","spec":' + '{"a":' * levels + "1" + "}" * levels + "}")
    program = [*COMMAND, "explain", "-f", str(path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode > 0
    assert "Traceback" not in done.stderr
    assert "deep.json" in done.stderr


@pytest.mark.parametrize("text", ["", "---\n", "{kind: List, apiVersion: v1, items: []}"], ids=repr)
def test_explain_of_a_file_without_objects_says_so(text):
    result = CliRunner().invoke(main, ["explain", "-f", "-", "-o", "json"], input=text)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "[]\n", "note: - has no objects\n")


def test_inherited_ttl_comes_from_the_file(explain):
    done = trainjob(complete=ago(60))

    unread = explain(done, output="json")
    assert unread["reason"] == "inherited-unread"
    assert unread["problem"].endswith("torch-distributed, from which it may inherit its TTL, is not in this file")

    _, read = explain(runtime(90), done, output="json")
    assert (read["ttlSeconds"], read["ttlFrom"]) == (
        90,
        "spec.runPolicy.ttlSecondsAfterFinished of ClusterTrainingRuntime torch-distributed",
    )


EVICTED: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "shop", "annotations": {f"{ANNOTATION_DOMAIN}/ttl": "1h"}},
    "status": {"phase": "Failed", "reason": "Evicted", "startTime": "2026-01-02T03:00:05Z"},
}
"""A Pod as `kubectl get -o yaml` prints it: the conditions may be missing, and `managedFields` are."""
STATUS_WRITE = {"manager": "kubelet", "subresource": "status", "time": "2026-01-02T03:10:00Z"}


@pytest.mark.parametrize("obj", [EVICTED, annotated(BACKUP, ttl="1h")], ids=["pod", "rule of the user"])
def test_explain_of_a_file_without_managed_fields_names_the_flag_of_kubectl(explain, obj):
    lines = {line.split()[0]: line for line in explain(obj)[1:]}
    assert "--show-managed-fields" in lines["finished"]
    assert "-o yaml --show-managed-fields" in lines["do"]
    assert "ttl set" not in lines["do"]


def test_explain_of_a_file_without_managed_fields_says_that_the_finish_may_be_later(explain):
    started = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-02T03:00:05Z"}
    evicted = EVICTED | {"status": EVICTED["status"] | {"conditions": [started]}}
    lines = {line.split()[0]: line for line in explain(evicted)[1:]}
    assert "or later: the file has no metadata.managedFields" in lines["finished"]


def test_explain_of_a_file_with_managed_fields_names_no_flag(explain):
    evicted = EVICTED | {"metadata": EVICTED["metadata"] | {"managedFields": [STATUS_WRITE]}}
    assert "--show-managed-fields" not in "".join([*explain(evicted), *explain(job(complete=ago(60)))])


def test_explain_advises_no_instant_in_the_past_if_the_finish_time_is_unknown(explain):
    unwritten = annotated(BACKUP, ttl="1h")
    unwritten["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    assert "kubectl ttl set backups.example.com/b TIME`" in "".join(explain(unwritten))
