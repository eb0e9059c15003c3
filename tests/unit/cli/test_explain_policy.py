"""What `explain -f` shows of a policy: the rule that sets the TTL, what it keeps, and what moves the due time."""

import json

import pytest
import yaml
from click.testing import CliRunner

from shared.cli.main import main
from tests.builders import NOW, ago, job, namespace, owned_by, pod, stamp

RULE = {"name": "ci", "match": {"kinds": ["*"]}}


@pytest.fixture
def explain(tmp_path):
    """The report of each object of a file, under a policy of one rule."""

    def run(*objects, output="json", **rule):
        policy = tmp_path / "policy.yaml"
        policy.write_text(
            yaml.safe_dump({"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", "rules": [{**RULE, **rule}]})
        )
        words = ["explain", "-f", "-", "--policy", str(policy), "--now", stamp(NOW), "-o", output]
        result = CliRunner().invoke(main, words, input=yaml.safe_dump_all(objects))
        assert result.exit_code == 0, result.output
        if output == "text":
            return result.stdout.splitlines()
        reported = json.loads(result.stdout)
        return reported if isinstance(reported, list) else [reported]

    return run


def jobs(count, **options):
    return [job(name=f"job-{n}", uid=f"uid-{n}", complete=ago(60 * n + 60), **options) for n in range(count)]


def test_explain_names_the_rule_that_sets_the_ttl(explain):
    (reported,) = explain(job(complete=ago(60)), ttl="1h")
    assert (reported["policyRule"], reported["ttlFrom"], reported["ttlSeconds"]) == ("ci", "policy rule ci", 3600)
    assert "  ttl       1h, by policy rule ci" in explain(job(complete=ago(60)), ttl="1h", output="text")


def test_explain_counts_the_newer_objects_of_a_kept_one(explain):
    reported = explain(*jobs(3), ttl="0s", keepLast=2)
    assert [one["decision"] for one in reported] == ["ignore", "ignore", "expire"]
    counted = {"rule": "ci", "keeps": 2, "outcome": "succeeded"}
    assert [one["keepLast"] for one in reported] == [{**counted, "newer": n} for n in range(3)]
    lines = [one for one in explain(*jobs(2), ttl="0s", keepLast=2, output="text") if one.startswith("  keepLast")]
    what = "  keepLast  policy rule ci keeps the newest 2 that succeeded of its kind in this namespace;"
    assert lines == [f"{what} {newer} of them finished later" for newer in ("none", "1")]


@pytest.mark.parametrize(
    ("by", "words"),
    [("owner", ", by owner;"), ({"label": "app"}, ", by label app;"), ({"cel": "'x'"}, ", by a CEL expression;")],
)
def test_explain_names_the_group_of_keep_last(explain, by, words):
    assert any(words in line for line in explain(*jobs(1), ttl="0s", keepLast=2, keepLastBy=by, output="text"))


def test_explain_shows_the_place_of_an_object_that_max_count_limits(explain):
    reported = explain(*jobs(3), maxCount=2)
    assert [(one["decision"], one["reason"]) for one in reported] == [
        ("ignore", "no-ttl"),
        ("ignore", "no-ttl"),
        ("expire", "over-count"),
    ]
    assert [one["maxCount"] for one in reported] == [
        {"rule": "ci", "limit": 2, "position": 3 - n, "of": 3} for n in range(3)
    ]
    lines = explain(*jobs(3), maxCount=2, countBy={"label": "app"}, output="text")
    assert [one for one in lines if one.startswith("  maxCount")][-1] == (
        "  maxCount  1st oldest of 3 finished objects of its kind in this namespace, by label app; limit 2, by policy "
        "rule ci"
    )
    assert any(one.startswith("  decision  deleted now (over-count): its group has more") for one in lines)


def test_explain_of_a_file_knows_no_quotas(explain):
    (reported,) = explain(job(complete=ago(60)), ttl="1h", whenQuotaAbove="90%")
    assert reported["quota"] == {"rule": "ci", "abovePercent": 90, "quotas": [], "excess": 0, "older": None}
    (line,) = [
        one
        for one in explain(job(complete=ago(60)), ttl="1h", whenQuotaAbove="90%", output="text")
        if one.startswith("  quota")
    ]
    assert line.endswith("limits the number of objects of its kind; limit 90 %, by policy rule ci")


def test_explain_counts_failed_objects_apart(explain):
    objects = (*jobs(1), job(failed=ago(9)))
    end = "of its kind in this namespace; none of them finished later"
    lines = explain(*objects, ttl="0s", keepLast=1, keepLastFailed=3, output="text")
    assert f"  keepLast  policy rule ci keeps the newest 3 that failed {end}" in lines
    lines = explain(*objects, ttl="0s", keepLast=3, keepLastOutcomes="together", output="text")
    assert f"  keepLast  policy rule ci keeps the newest 3 {end}" in lines


def test_explain_names_the_setting_that_moves_the_due_time(explain):
    (reported,) = explain(job(complete=ago(60), ttl=10), minAge="5m")
    assert (reported["decision"], reported["movedBy"]) == ("wait", "minAge of policy rule ci")
    (line,) = [
        one for one in explain(job(complete=ago(60)), ttl="1s", minAge="5m", output="text") if one.startswith("  due")
    ]
    assert line.endswith("(in 4m), moved by minAge of policy rule ci")


def test_explain_applies_namespaces_of_the_file_without_reporting_them(explain):
    (reported,) = explain(namespace("ci", max_ttl="30s"), job(complete=ago(60)), ttl="1h")
    assert (reported["decision"], reported["movedBy"]) == ("expire", "the namespace's max-ttl")
    (reported,) = explain(namespace("ci", exempt="true"), job(complete=ago(60)), ttl="1s")
    assert reported["reason"] == "exempt"
    (reported,) = explain(namespace("other", exempt="true"), job(complete=ago(60)), ttl="1s")
    assert reported["reason"] == "expired"


def test_namespace_selector_matches_labels_of_the_file(explain):
    match = {"kinds": ["jobs"], "namespaces": {"selector": {"matchLabels": {"tier": "ci"}}}}
    (reported,) = explain(namespace("ci", labels={"tier": "ci"}), job(complete=ago(60)), match=match, ttl="1s")
    assert reported["decision"] == "expire"
    (reported,) = explain(job(complete=ago(60)), match=match, ttl="1s")
    assert reported["reason"] == "no-ttl"


def test_unfinished_owner_of_the_file_keeps_its_dependents(explain):
    owner = job(name="owner", uid="owner-uid")
    made = owned_by(pod(containers=({"name": "main", "state": {"terminated": {"exitCode": 0}}},)), "Job")
    assert explain(owner, made, ttl="1s")[1]["decision"] == "ignore"


def test_job_of_a_cronjob_expires_while_the_cronjob_exists(explain):
    assert explain(owned_by(job(complete=ago(60)), "CronJob"), ttl="1s")[0]["decision"] == "expire"


def test_explain_rejects_an_invalid_policy_with_its_line(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("apiVersion: ttlafterfinished.dev/v1\nkind: Policy\nrules:\n  - name: x\n")
    result = CliRunner().invoke(main, ["explain", "-f", "-", "--policy", str(path)], input="")
    assert result.exit_code == 1
    assert result.output.startswith("Error: policy.yaml:4: rules.0.match")
