"""What `explain` tells of what stands around an object."""

import json
import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner

from shared.cli.main import main
from shared.core.ttl.annotations import OF_NAMESPACES, OF_OBJECTS
from tests.builders import ago, annotated, having, job, namespace, owned_by, pod

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


def test_nothing_is_said_of_what_is_not_there(explain):
    assert {line.split()[0] for line in explain(job())[1:]} == {"finished", "ttl", "due", "decision"}


def test_a_powerless_annotation_is_said_to_be_and_what_to_do(explain):
    (line,) = [one for one in explain(job(ttl=60, hold="why")) if one.startswith("  powerless")]
    assert "kube-controller-manager acts on spec.ttlSecondsAfterFinished: 60" in line
    assert "kubectl ttl hold" in line
    assert explain(job(ttl=60, hold="why"), output="json")["powerlessAgainst"] == "spec.ttlSecondsAfterFinished"


def test_an_annotation_that_nobody_knows_is_named_with_those_there_are(explain):
    told = (
        "unknown annotation ttlafterfinished.dev/tttl: "
        "expected one of hold, ttl, ttl-succeeded, ttl-failed, expire-at, owner, held-ttl"
    )
    assert [line for line in explain(job(tttl="1h")) if "unknown" in line] == [f"  problem   {told}"]
    assert explain(job(tttl="1h"), output="json")["unknownAnnotations"] == [told]


def test_one_on_its_namespace_is_named_too(explain):
    ci = namespace("ci", default_ttll="1d", max_ttl="30d")
    (told,) = explain(ci, job(), output="json")["unknownAnnotations"]
    assert told == (
        "unknown annotation ttlafterfinished.dev/default-ttll of namespace ci: "
        "expected one of default-ttl, default-ttl-succeeded, default-ttl-failed, max-ttl, exempt"
    )


def test_each_that_is_known_is_no_slip(explain):
    known = annotated(job(), **dict.fromkeys(OF_OBJECTS, "1h"))
    ci = namespace("ci", **dict.fromkeys((*OF_NAMESPACES, *OF_OBJECTS), "1h"))
    assert explain(ci, known, output="json")["unknownAnnotations"] == []
    elsewhere = having(job(), "metadata.annotations", {"example.com/tttl": "1h"})
    assert explain(elsewhere, output="json")["unknownAnnotations"] == []


def test_a_hold_says_why_and_what_waits_for_its_end(explain):
    assert "  hold      why" in explain(job(hold="why"))
    assert "  hold      no reason is given" in explain(job(hold=""))
    kept = '{"spec.ttlSecondsAfterFinished": 60}'
    assert f"  hold      why; a release gives back {kept}" in explain(job(hold="why", held_ttl=kept))


def test_the_others_stand_one_below_the_other(explain):
    obj = owned_by(job(ttl=60), "CronJob")
    obj["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    lines = explain(having(obj, "metadata.finalizers", ["foregroundDeletion", "example.com/x"]))
    at = next(number for number, line in enumerate(lines) if line.startswith("  others"))
    assert lines[at].startswith("  others    kube-controller-manager: acts on")
    others = [line for line in lines if line.startswith(("  others", " " * 12))]
    assert any(line.strip().startswith("Helm: ") for line in others)
    assert "  finalizer foregroundDeletion: the garbage collector deletes its dependents first" in lines
    assert any(line.startswith("            example.com/x: unknown finalizer") for line in lines)


@pytest.mark.parametrize(
    ("owner", "state"),
    [
        (job(uid="owner-uid", name="owner"), "it has not finished"),
        (job(uid="owner-uid", name="owner", complete=ago(0)), "it has finished at 2026-03-14T15:09:26Z, succeeded"),
        (SERVICE, "it never finishes, and what it makes may go all the same"),
        (pod(), "it is not among these objects"),
    ],
)
def test_the_owner_is_named_and_whether_it_has_finished(explain, owner, state):
    owned = owned_by(pod(name="x"), owner["kind"], api_version=owner["apiVersion"])
    told = explain(owner, owned, output="json")[-1]
    assert told["owner"] == {"kind": owner["kind"], "name": "owner", "state": state}


def test_a_kind_that_never_finishes_says_why(explain):
    assert "  kind      it serves for good; what it runs is deleted with it" in explain(SERVICE)


def test_a_kind_of_data_says_how_to_ask_for_its_deletion_where_nobody_did(explain):
    lines = explain(BACKUP)
    assert any(one.startswith("  opt-in    deleting it deletes the data; so nothing but its own anno") for one in lines)
    assert "  do        `kubectl ttl set backups.example.com/b 1h` has it deleted an hour after it finished" in lines
    assert "  opt-in    deleting it deletes the data" in explain(annotated(BACKUP, ttl="1h"))
    assert "  note      A backup is data." in explain(BACKUP)


def test_the_first_lines_are_the_answer_the_reason_and_what_to_do(explain):
    held = explain(job(complete=ago(60), ttl_succeeded="1s", hold="looking"))
    assert [line.split()[0] for line in held[1:4]] == ["decision", "hold", "do"]
    assert held[3] == "  do        `kubectl ttl release jobs.batch/build-42 -n ci` ends the hold"
    malformed = explain(job(complete=ago(60), ttl="soon"))
    assert [line.split()[0] for line in malformed[1:4]] == ["decision", "problem", "do"]


def test_a_ttl_that_a_hold_left_behind_is_said_to_be_and_its_cure(explain):
    kept = '{"spec.ttlSecondsAfterFinished": 60}'
    lines = explain(job(complete=ago(60), held_ttl=kept))
    assert any("a hold that was removed left spec.ttlSecondsAfterFinished: 60 saved" in line for line in lines)
    (cure,) = [one for one in lines if one.startswith("  do  ")]
    assert "kubectl ttl release jobs.batch/" in cure


@pytest.mark.parametrize("hold", [{}, {"hold": "why"}])
def test_a_held_ttl_that_cannot_be_read_is_advised_to_be_removed_first(explain, hold):
    lines = explain(job(complete=ago(60), held_ttl="{", **hold))
    (cure,) = [one for one in lines if one.startswith("  do  ")]
    assert "`kubectl annotate jobs.batch/build-42 ttlafterfinished.dev/held-ttl- -n ci` removes what cannot be" in cure
    assert ("kubectl ttl release" if hold else "kubectl ttl set") in cure
    assert any("annotation ttlafterfinished.dev/held-ttl: expected JSON" in one for one in lines)


def test_what_its_own_controller_deletes_is_not_said_to_stay(explain):
    lines = explain(job(complete=ago(60), ttl=3600, hold="why"))
    assert lines[1].startswith("  decision  stays, as far as we go (held)")
    (told,) = [one for one in lines if one.startswith("  powerless")]
    assert "it is due by that at 2026-03-14T16:08:26Z" in told


def test_an_unfinished_object_says_which_condition_is_missing_and_a_program_reads_it(explain):
    assert "  finished  no: no condition Complete or Failed with status True" in explain(job())
    told = explain(job(), output="json")
    assert told["unfinished"] == {
        "why": "no condition Complete or Failed with status True",
        "expected": ["condition Complete is True", "condition Failed is True"],
        "found": [],
    }
    assert explain(job(complete=ago(1)), output="json")["unfinished"] is None


@pytest.mark.parametrize("levels", [200, 7_000, 50_000])
def test_a_document_that_is_nested_too_deeply_is_one_sentence(levels, tmp_path):
    """In a process: what overflows the C stack ends it with a negative code."""
    path = tmp_path / "deep.json"
    path.write_text('{"kind":"Job","spec":' + '{"a":' * levels + "1" + "}" * levels + "}")
    program = [sys.executable, "-c", "from shared.cli.main import main; main()", "explain", "-f", str(path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode > 0
    assert "Traceback" not in done.stderr
    assert "deep.json" in done.stderr
