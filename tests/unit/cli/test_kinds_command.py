"""`kinds` and `kinds test`: the text and the JSON of kind rules, shipped ones and the user's."""

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from shared.cli.kind_rules.rule_text import describe_rule, summarize_finished
from shared.cli.main import main
from shared.core.kinds.predicates import Predicate
from shared.core.kinds.wording import describe_test
from tests.builders import FIXTURES, ago, having, job, kind_rules, stamp

RULE = {
    "apiVersions": ["example.com/v1"],
    "kind": "Render",
    "plural": "renders",
    "finished": {"field": "status.phase", "values": {"Done": "succeeded", "Broken": "failed"}},
    "finishedAt": ["status.endTime", "managed-fields"],
    "optIn": "deleting it deletes the film",
}
RENDER: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Render",
    "metadata": {"name": "film", "namespace": "studio"},
    "status": {"phase": "Done", "endTime": "2026-01-02T03:04:05Z"},
}
CREATED = "metadata.creationTimestamp"
EXPECT = {"finished": True, "at": "2026-01-02T03:04:05Z", "outcome": "succeeded"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "renders.yaml").write_text(yaml.safe_dump(RULE, sort_keys=False))
    return tmp_path / "rules"


def run(*words, stdin=None):
    return CliRunner(env={"TTL_KINDS_DIR": None}).invoke(main, ["kinds", *map(str, words)], input=stdin)


# The list


def test_kinds_lists_and_counts_every_kind():
    result = run()
    rules = kind_rules().values()
    assert result.exit_code == 0
    assert all(rule.name in result.output for rule in rules)
    finishing = sum(not rule.never_finishes for rule in rules)
    assert f"{finishing} kinds finish" in result.output
    assert "RULE" not in result.output


def test_kinds_marks_the_users_rules(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")  # a narrow terminal has no column of rules
    (folder / "job.yaml").write_text(yaml.safe_dump(RULE | {"apiVersions": ["batch/v1"], "kind": "Job"}))
    rows = {row.split()[0]: row for row in run("--kinds-dir", folder).output.splitlines() if "yours" in row}
    assert rows.keys() == {"renders.batch", "renders.example.com"}
    assert rows["renders.batch"].rstrip().endswith("yours, replaces the shipped one")
    assert rows["renders.example.com"].rstrip().endswith("yours")


def test_kinds_reads_the_directory_from_the_environment(folder):
    result = CliRunner(env={"TTL_KINDS_DIR": str(folder)}).invoke(main, ["kinds", "render"])
    assert "Render (renders.example.com), namespaced" in result.output


def test_invalid_rule_is_rejected_with_its_file_and_line(folder):
    (folder / "renders.yaml").write_text("apiVersions: [example.com/v1]\nkind: render\nplural: renders\n")
    result = run("--kinds-dir", folder)
    assert result.exit_code == 1
    assert "renders.yaml:2: kind: expected a text like" in result.output


# One kind


def test_kinds_explains_one_rule(folder):
    lines = run("render", "--kinds-dir", folder).output.splitlines()
    assert "  finished      succeeded, if status.phase is Done" in lines
    assert "                failed, if status.phase is Broken" in lines
    assert "  finish time   status.endTime" in lines
    assert any(line.startswith("  opt-in        deleting it deletes the film; it is deleted only") for line in lines)
    assert any(line.startswith("  rule          yours, ") for line in lines)


def test_kinds_explains_the_shipped_rule_of_jobs():
    output = run("job").output
    assert "kube-controller-manager acts on it too; the earlier" in output
    assert "shipped, job.yaml" in output


def test_kinds_prints_a_rule_as_json(folder):
    reported = json.loads(run("render", "--kinds-dir", folder, "-o", "json").stdout)
    assert reported["rule"] == RULE
    assert (reported["name"], reported["shipped"], reported["replaces"]) == ("renders.example.com", False, None)
    assert len(json.loads(run("-o", "json").stdout)) == len(kind_rules())


def test_kinds_prints_the_children_of_a_kind():
    parts = dict(describe_rule(kind_rules()["jobsets.jobset.x-k8s.io"]))

    assert parts["children"] == ["Job of batch, Pod; stored with it where a policy rule has archive.children"]
    assert "children" not in dict(describe_rule(kind_rules()["pod"]))
    children = json.loads(run("jobsets.jobset.x-k8s.io", "-o", "json").stdout)["rule"]["children"]
    assert [child["kind"] for child in children] == ["Job", "Pod"]


def test_kinds_test_rejects_invalid_children_with_their_place(folder, tmp_path):
    child = {"apiVersions": ["v1"], "kind": "pod", "plural": "pods"}
    (folder / "renders.yaml").write_text(yaml.safe_dump(RULE | {"children": [child]}, sort_keys=False))
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(RENDER))

    result = run("test", tmp_path / "cases.yaml", "--rule", folder / "renders.yaml")

    assert result.exit_code == 1
    assert "children.0.kind" in result.output


def test_unknown_kind_is_an_error():
    result = run("jbo")
    assert result.exit_code == 2
    assert "unknown kind 'jbo': expected a kind, perhaps jobs.batch" in result.output


def test_every_shipped_rule_is_described():
    for name, rule in kind_rules().items():
        reported = dict(describe_rule(rule))
        assert reported["versions"] == [", ".join(rule.api_versions)], name
        assert all(word and "None" not in word for words in reported.values() for word in words), name
        assert summarize_finished(rule), name


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ({"condition": "Ready"}, "condition Ready is True"),
        (
            {"condition": "Ready", "status": ["False", "Unknown"], "reasons": ["Denied"]},
            "condition Ready is False or Unknown with reason Denied",
        ),
        ({"field": "status.phase", "values": ["A", "B", 3]}, "status.phase is A, B or 3"),
        ({"field": "status.done", "values": [True]}, "status.done is true"),
        ({"field": "status.endTime"}, "status.endTime is set"),
        ({"label": "a/b", "values": ["x"]}, "label a/b is x"),
        ({"annotation": "a/b"}, "annotation a/b is set"),
        ({"cel": "object.a ==\n 1"}, "CEL: object.a == 1"),
        ({"none": [{"label": "a"}]}, "label a is not set"),
        ({"none": [{"condition": "Admitted"}]}, "condition Admitted is not True"),
        ({"none": [{"label": "a"}, {"label": "b"}]}, "not (label a is set or label b is set)"),
        (
            {"all": [{"label": "a"}, {"any": [{"label": "b"}, {"label": "c"}]}]},
            "label a is set and (label b is set or label c is set)",
        ),
        ({"any": [{"all": [{"label": "a"}]}, {"label": "b"}]}, "label a is set or label b is set"),
    ],
)
def test_predicate_is_described_in_words(test, words):
    assert describe_test(Predicate.model_validate(test)) == words


def test_kind_with_a_deadline_is_described_in_words():
    lines = [" ".join(line.split()) for line in run("pipelineruns").stdout.splitlines()]
    start = lines.index("start status.startTime")
    assert lines[start : start + 8] == [
        "start status.startTime",
        "suspended its deadline does not run while spec.status is PipelineRunPending or status.startTime is not set",
        "its deadline spec.timeouts.pipeline, a duration such as 72h0m0s",
        "spec.timeout, a duration such as 72h0m0s",
        "0 means never; a negative value is invalid",
        "set by default and enforced by the Tekton controller; the earlier deadline stops the object",
        'stopped by the merge patch {"spec": {"status": "Cancelled"}}',
        "its controller then finishes it",
    ]


def test_kind_that_cannot_be_stopped_says_why():
    lines = [" ".join(line.split()) for line in run("virtualmachineinstancemigrations").stdout.splitlines()]
    assert "stopped never, only deleted: KubeVirt cancels a migration when the object is deleted" in lines


# kinds test


def test_kinds_test_prints_the_result_of_each_object():
    other = job(name="other")
    result = run("test", "-", stdin=yaml.safe_dump({"kind": "List", "items": [job(complete=ago(10), ttl=60), other]}))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Job ci/build-42",
        f"  finished, succeeded, at {stamp(ago(10))}; its own TTL field: 1m",
        "Job ci/other",
        f"  unfinished; its own TTL field: none; running since {other['metadata']['creationTimestamp']}",
        "objects: 2; with an expected result: 0; wrong: 0",
    ]


@pytest.mark.parametrize("name", ["job", "pod", "trainjob"])
def test_fixtures_of_shipped_rules_are_cases(name):
    result = run("test", FIXTURES / "kinds" / f"{name}.yaml")
    assert result.exit_code == 0, result.output
    assert "wrong: 0" in result.output


@pytest.mark.parametrize(
    "expect",
    [
        EXPECT | {"outcome": "failed"},
        EXPECT | {"at": "2026-01-02T03:04:06Z"},
        EXPECT | {"at": None},
        EXPECT | {"ttl": "1h"},
        {"finished": False},
        {"finished": None},
    ],
)
def test_unexpected_result_is_printed_and_exits_with_1(folder, expect):
    cases = yaml.safe_dump_all(
        [{"name": "right", "expect": EXPECT, "object": RENDER}, {"name": "wrong", "expect": expect, "object": RENDER}]
    )
    result = run("test", "-", "--rule", folder / "renders.yaml", stdin=cases)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("ok     right: finished, succeeded, at 2026-01-02T03:04:05Z")
    assert lines[1] == "WRONG  wrong"
    assert "got      finished, succeeded, at 2026-01-02T03:04:05Z" in lines[3]
    assert lines[-1] == "objects: 2; with an expected result: 2; wrong: 1"


def test_object_without_managed_fields_is_reported_with_the_flag_of_kubectl(folder):
    ended = RENDER | {"status": {"phase": "Done"}}
    written = ended | {"metadata": RENDER["metadata"] | {"managedFields": [{"manager": "kubectl"}]}}
    outputs = [
        run("test", "-", "--rule", folder / "renders.yaml", stdin=yaml.safe_dump(one)).stdout
        for one in (ended, written, RENDER)
    ]
    assert ["kubectl get -o yaml --show-managed-fields" in output for output in outputs] == [True, False, False]


def test_finish_before_the_creation_is_said_to_be_ignored(folder):
    outputs = [
        run("test", "-", "--rule", folder / "renders.yaml", stdin=yaml.safe_dump(having(RENDER, CREATED, at))).stdout
        for at in ("2026-01-02T03:04:06Z", "2026-01-02T03:04:05Z")
    ]
    assert ["2026-01-02T03:04:05Z, which is before its creation" in output for output in outputs] == [True, False]


def test_ttl_is_compared_only_if_it_is_expected():
    case = {"name": "one", "expect": {"finished": False, "ttl": "1h"}, "object": job(ttl=3600)}
    other = {"name": "other", "expect": {"finished": False}, "object": job(ttl=3600)}
    assert run("test", "-", stdin=yaml.safe_dump_all([case, other])).exit_code == 0


def test_rule_option_tests_one_rule_alone(folder):
    result = run("test", "-", "--rule", folder / "renders.yaml", stdin=yaml.safe_dump(job()))
    assert result.exit_code == 1
    assert "no kind rule for its apiVersion and kind" in result.output


@pytest.mark.parametrize(
    ("case", "reported"),
    [
        ({"name": "x", "object": RENDER}, "stdin, object 1: expect: "),
        ({"name": "x", "expect": {"finished": 3}, "object": RENDER}, "stdin, object 1: expect.finished: "),
        ({"name": "x", "expect": EXPECT | {"time": 3}, "object": RENDER}, "stdin, object 1: expect.time: "),
    ],
)
def test_invalid_case_is_rejected_with_its_place(case, reported):
    result = run("test", "-", stdin=yaml.safe_dump(case))
    assert result.exit_code == 1
    assert reported in result.output
