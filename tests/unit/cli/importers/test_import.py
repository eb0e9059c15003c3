"""`import`: the policy of each cleaner's configuration, what it prints beside it, and its errors."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from shared.adapters.config.policy_file import parse_policy
from shared.cli.importers.import_command import IMPORTERS
from shared.cli.main import main
from tests.builders import ROOT, shipped_kinds

FIXTURES = ROOT / "tests/fixtures/imports"
NOW = "2026-11-26T12:00:00Z"


def run_import(cleaner: str, *files: Path) -> Result:
    return CliRunner().invoke(main, ["import", "--from", cleaner, *map(str, files)])


def import_text(cleaner: str, folder: Path, document: Any) -> Result:
    """Import one document, or several in a list."""
    file = folder / "dump.yaml"
    file.write_text(yaml.safe_dump_all(document if isinstance(document, list) else [document]))
    return run_import(cleaner, file)


def rules_of(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load(result.stdout)["rules"])


def config_map(name: str, key: str, text: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "ops"},
        "data": {key: text},
    }


@pytest.mark.parametrize("cleaner", IMPORTERS)
def test_import_writes_a_valid_policy_and_what_differs(cleaner: str) -> None:
    folder = FIXTURES / cleaner
    result = run_import(cleaner, folder / "input.yaml")
    assert result.exit_code == 0, result.output
    assert result.stdout == (folder / "policy.yaml").read_text()
    assert result.stderr == (folder / "messages.txt").read_text()
    assert parse_policy(result.stdout, shipped_kinds(), name="policy.yaml").rules


# What the policies decide


def reasons(policy: Path, objects: list[dict[str, Any]], folder: Path) -> dict[str, str]:
    """The reason of the decision about each object, by its name."""
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    arguments = ["explain", "-f", str(file), "--now", NOW, "--policy", str(policy), "-o", "json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return {one["name"]: one["reason"] for one in json.loads(result.stdout)}


def job(name: str, *, finished_at: str | None = "2026-11-26T11:00:00Z", namespace: str = "ci", **metadata: Any) -> Any:
    ended = [{"type": "Complete", "status": "True", "lastTransitionTime": finished_at}] if finished_at else []
    created = {"creationTimestamp": "2026-11-20T00:00:00Z", "uid": name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, **created, **metadata},
        "status": {"conditions": ended},
    }


def workflow(name: str, phase: str, finished_at: str) -> Any:
    labels = {"workflows.argoproj.io/completed": "true"}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name, "namespace": "ci", "uid": name, "labels": labels, "creationTimestamp": finished_at},
        "spec": {},
        "status": {"phase": phase, "finishedAt": finished_at},
    }


def test_ttl_of_kube_janitor_counts_from_the_finish(tmp_path: Path) -> None:
    two_days: Any = {"annotations": {"janitor/ttl": "2d"}}
    objects = [
        job("fresh", **two_days),
        job("old", finished_at="2026-11-24T11:00:00Z", **two_days),
        job("running", finished_at=None, **two_days),
        job("kept", finished_at="2026-11-21T11:00:00Z", annotations={"janitor/ttl": "forever"}),
        job("unreadable", finished_at="2026-11-21T11:00:00Z", annotations={"janitor/ttl": "2 days"}),
        job("pr-17", finished_at="2026-11-26T06:00:00Z", labels={"team": "web"}),
        job("excluded", namespace="ops", finished_at="2026-11-24T11:00:00Z", **two_days),
    ]
    found = reasons(FIXTURES / "kube-janitor/policy.yaml", objects, tmp_path)
    assert found == {
        "fresh": "not-due",
        "old": "expired",
        "running": "unfinished",
        "kept": "never",
        "unreadable": "never",
        "pr-17": "expired",
        "excluded": "no-ttl",
    }


def test_failed_workflow_has_its_own_ttl_and_error_that_of_completion(tmp_path: Path) -> None:
    at = "2026-11-25T11:00:00Z"
    objects = [workflow(phase.lower(), phase, at) for phase in ("Succeeded", "Failed", "Error")]
    found = reasons(FIXTURES / "argo/policy.yaml", objects, tmp_path)
    assert found == {
        "succeeded": "expired",
        "failed": "expired",
        "error": "not-due",
    }


def test_unfinished_workflow_without_a_phase_is_unfinished(tmp_path: Path) -> None:
    both = [workflow(name, "", "2026-11-25T11:00:00Z") | {"status": {}} for name in ("new", "newer")]
    found = reasons(FIXTURES / "argo/policy.yaml", both, tmp_path)
    assert found == {"new": "unfinished", "newer": "unfinished"}


def pipeline_run(name: str, finished_at: str, *, failed: bool = False, pipeline: str = "build") -> Any:
    succeeded = {"type": "Succeeded", "status": "False" if failed else "True", "lastTransitionTime": finished_at}
    labels = {"tekton.dev/pipeline": pipeline}
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": name, "namespace": "ci", "uid": name, "labels": labels, "creationTimestamp": finished_at},
        "status": {"completionTime": finished_at, "conditions": [succeeded]},
    }


def test_history_limits_of_the_pruner_count_each_outcome_apart(tmp_path: Path) -> None:
    config = {"ttlSecondsAfterFinished": 604800, "historyLimit": 1}
    text = config_map("tekton-pruner-default-spec", "global-config", json.dumps(config))
    policy = tmp_path / "policy.yaml"
    policy.write_text(import_text("tekton-pruner", tmp_path, text).stdout)
    objects = [
        pipeline_run("old", "2026-11-26T08:00:00Z"),
        pipeline_run("new", "2026-11-26T09:00:00Z"),
        pipeline_run("old-failure", "2026-11-26T06:00:00Z", failed=True),
        pipeline_run("new-failure", "2026-11-26T07:00:00Z", failed=True),
    ]
    assert reasons(policy, objects, tmp_path) == {
        "old": "over-count",
        "new": "not-due",
        "old-failure": "over-count",
        "new-failure": "not-due",
    }


HISTORY = {"match": {"kinds": ["pipelineruns"]}, "ttl": "0s", "keepLastBy": {"label": "tekton.dev/pipeline"}}


def test_recipe_of_a_history_limit_keeps_as_many_runs_of_each_outcome(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps({"rules": [{"name": "history", **HISTORY, "keepLast": 5}]}))
    runs = [pipeline_run(f"run-{hour}", f"2026-11-26T{hour:02}:00:00Z", failed=hour >= 6) for hour in range(12)]

    expired = [name for name, reason in reasons(policy, runs, tmp_path).items() if reason == "expired"]
    assert expired == ["run-0", "run-6"]


def test_pruner_of_the_operator_counts_all_outcomes_together(tmp_path: Path) -> None:
    config = {"apiVersion": "operator.tekton.dev/v1alpha1", "kind": "TektonConfig", "metadata": {"name": "config"}}
    config["spec"] = {"pruner": {"keep": 2, "resources": ["pipelinerun"], "prune-per-resource": True}}
    policy = tmp_path / "policy.yaml"
    policy.write_text(import_text("tekton-pruner", tmp_path, config).stdout)
    runs = [pipeline_run(f"run-{hour}", f"2026-11-26T0{hour}:00:00Z", failed=hour >= 2) for hour in range(4)]

    assert set(yaml.safe_load(policy.read_text())["rules"][0]) >= {"keepLast", "keepLastOutcomes"}
    expected = {"run-0": "expired", "run-1": "expired", "run-2": "kept-last", "run-3": "kept-last"}
    assert reasons(policy, runs, tmp_path) == expected


def test_history_limit_of_a_pipeline_counts_its_runs_alone(tmp_path: Path) -> None:
    entries = {"pipelineRuns": [{"name": "build", "historyLimit": 1}]}
    own = config_map("tekton-pruner-namespace-spec", "ns-config", json.dumps(entries))
    own["metadata"]["namespace"] = "ci"
    policy = tmp_path / "policy.yaml"
    policy.write_text(import_text("tekton-pruner", tmp_path, own).stdout)
    objects = [
        pipeline_run("build-1", "2026-11-26T06:00:00Z"),
        pipeline_run("build-2", "2026-11-26T07:00:00Z"),
        pipeline_run("other", "2026-11-26T08:00:00Z", pipeline="deploy"),
    ]
    assert reasons(policy, objects, tmp_path) == {"build-1": "over-count", "build-2": "no-ttl", "other": "no-ttl"}


def test_age_and_outcome_of_a_cleanup_policy_become_a_rule(tmp_path: Path) -> None:
    def pod(name: str, phase: str, created_at: str, namespace: str = "ci") -> Any:
        at = "2026-11-26T11:00:00Z"
        status = {"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": at}}}
        metadata = {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": created_at}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]},
            "status": {"phase": phase, "containerStatuses": [status]},
        }

    objects = [
        pod("old", "Succeeded", "2026-11-24T00:00:00Z"),
        pod("young", "Succeeded", "2026-11-26T10:00:00Z"),
        pod("running", "Running", "2026-11-24T00:00:00Z"),
        pod("excluded", "Succeeded", "2026-11-24T00:00:00Z", "kube-system"),
    ]
    assert reasons(FIXTURES / "kyverno/policy.yaml", objects, tmp_path) == {
        "old": "expired",
        "young": "not-due",
        "running": "unfinished",
        "excluded": "no-ttl",
    }


# Rules files and conditions


@pytest.mark.parametrize(
    ("expression", "match", "when"),
    [
        ("metadata.namespace == 'temp'", {"namespaces": {"names": ["temp"], "except": ["kube-system"]}}, None),
        (
            "starts_with(metadata.namespace, 'pr-')",
            {"namespaces": {"names": ["pr-*"], "except": ["kube-system"]}},
            None,
        ),
        ('metadata.labels.app == `"web"`', {"labels": {"matchLabels": {"app": "web"}}}, None),
        (
            '!(metadata.labels."app.kubernetes.io/name")',
            {"labels": {"matchExpressions": [{"key": "app.kubernetes.io/name", "operator": "DoesNotExist"}]}},
            None,
        ),
        ("metadata.annotations.team == 'a*'", {"annotations": {"team": "a[*]"}}, None),
        ("contains(metadata.name, 'tmp')", {}, 'object.metadata.name.contains("tmp")'),
        ("spec.suspend", None, None),
        ("metadata.labels.app == 'web' || metadata.labels.app == 'db'", None, None),
        ("metadata.creationTimestamp > '2026-04-01'", None, None),
        ("length(spec.template.spec.containers) > `1`", None, None),
        ("metadata.labels.app == 'a' && metadata.labels.app == 'b'", None, None),
    ],
)
def test_jmespath_becomes_a_match_or_is_named(
    expression: str, match: dict[str, Any] | None, when: str | None, tmp_path: Path
) -> None:
    rule = {"id": "one", "resources": ["jobs"], "jmespath": expression, "ttl": "1h"}
    result = import_text("kube-janitor", tmp_path, {"rules": [rule]})
    if match is None:
        assert rules_of(result) == []
        assert "dump.yaml: rules.0.jmespath: rule one is left out" in result.stderr
        return
    (found,) = rules_of(result)
    assert match.items() <= found["match"].items()
    assert found.get("when") == when


@pytest.mark.parametrize(
    ("cleaner", "document", "error"),
    [
        (
            "kube-janitor",
            {"rules": [{"id": "one", "resources": ["jobs"], "ttl": "4 days"}]},
            "dump.yaml: rules.0.ttl: expected forever or a number with one of s, m, h, d, w, such as 7d, got '4 days'",
        ),
        (
            "kube-janitor",
            {"rules": {"id": "one"}},
            "dump.yaml: rules: expected a list, got a mapping",
        ),
        (
            "kube-janitor",
            config_map("kube-janitor", "rules.yaml", "rules:\n- {"),
            "dump.yaml: ConfigMap ops/kube-janitor: data.rules.yaml: invalid YAML at line 3",
        ),
        (
            "argo",
            config_map(
                "workflow-controller-configmap", "workflowDefaults", "spec: {ttlStrategy: {secondsAfterSuccess: 1h}}"
            ),
            "data.workflowDefaults.spec.ttlStrategy.secondsAfterSuccess: expected a whole number from 0 on, got '1h'",
        ),
        (
            "tekton-pruner",
            config_map("tekton-pruner-default-spec", "global-config", "enforcedConfigLevel: cluster"),
            "enforcedConfigLevel: expected one of global, namespace, resource, got 'cluster'",
        ),
        (
            "tekton-pruner",
            config_map("tekton-pruner-default-spec", "global-config", "ttlSecondsAfterFinished: -2"),
            "data.global-config: ttlSecondsAfterFinished: expected a whole number from -1 on, got -2",
        ),
        (
            "kyverno",
            {"kind": "ClusterCleanupPolicy", "metadata": {"name": "one"}, "spec": {"match": {"any": "pods"}}},
            "dump.yaml: ClusterCleanupPolicy one: spec.match.any: expected a list, got 'pods'",
        ),
    ],
)
def test_invalid_configuration_is_named_with_file_field_and_expectation(
    cleaner: str, document: Any, error: str, tmp_path: Path
) -> None:
    result = import_text(cleaner, tmp_path, document)
    assert result.exit_code == 1
    assert error in result.stderr
    assert result.stdout == ""


def test_note_about_many_objects_is_shortened(tmp_path: Path) -> None:
    annotated = {"annotations": {"janitor/ttl": "1d"}}
    pods = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"d{n}", **annotated}} for n in range(9)
    ]
    result = import_text("kube-janitor", tmp_path, pods)
    assert rules_of(result) == []
    assert result.stderr.count("a Deployment never finishes") == 6
    assert "and 4 more: a Deployment never finishes" in result.stderr


def test_pruner_with_level_global_takes_no_namespace_over(tmp_path: Path) -> None:
    shared = config_map("tekton-pruner-default-spec", "global-config", "enforcedConfigLevel: global\nhistoryLimit: 5")
    own = config_map("tekton-pruner-namespace-spec", "ns-config", "historyLimit: 1")
    result = import_text("tekton-pruner", tmp_path, [shared, own])
    assert {rule["maxCount"] for rule in rules_of(result)} == {5}
    assert "ConfigMap ops/tekton-pruner-namespace-spec: data.ns-config: has no effect" in result.stderr


def test_unknown_cleaner_is_rejected() -> None:
    result = run_import("reaper", Path("dump.yaml"))
    assert result.exit_code == 2
    assert "'kube-janitor', 'k8s-ttl-controller', 'kyverno', 'argo', 'tekton-pruner'" in result.stderr
