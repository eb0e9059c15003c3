"""What `explain` says of a policy, offline: the rule that speaks, what it keeps, and what moves the due instant."""

import json

import pytest
import yaml
from click.testing import CliRunner

from shared.cli.main import main
from shared.cli.objects.object_report import WORDS
from shared.core.decide import Reason
from tests.builders import NOW, ago, job, namespace, owned_by, pod, stamp

RULE = {"name": "ci", "match": {"kinds": ["*"]}}


@pytest.fixture
def explain(tmp_path):
    """What is told of each object of a file, under a policy of one rule."""

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
        told = json.loads(result.stdout)
        return told if isinstance(told, list) else [told]

    return run


def jobs(count, **options):
    return [job(name=f"job-{n}", uid=f"uid-{n}", complete=ago(60 * n + 60), **options) for n in range(count)]


def test_each_reason_has_words():
    assert set(WORDS) == set(Reason)


def test_the_rule_that_speaks_is_named(explain):
    (told,) = explain(job(complete=ago(60)), ttl="1h")
    assert (told["policyRule"], told["ttlFrom"], told["ttlSeconds"]) == ("ci", "policy rule ci", 3600)
    assert "  ttl       1h, by policy rule ci" in explain(job(complete=ago(60)), ttl="1h", output="text")


def test_who_is_kept_by_rank_is_told_how_many_are_newer(explain):
    told = explain(*jobs(3), ttl="0s", keepLast=2)
    assert [one["decision"] for one in told] == ["ignore", "ignore", "expire"]
    assert [one["keeper"] for one in told] == [{"rule": "ci", "keeps": 2, "newer": n} for n in range(3)]
    lines = [one for one in explain(*jobs(2), ttl="0s", keepLast=2, output="text") if one.startswith("  keeper")]
    assert lines == [
        "  keeper    policy rule ci keeps the newest 2 of its kind in this namespace; none finished later",
        "  keeper    policy rule ci keeps the newest 2 of its kind in this namespace; 1 finished later",
    ]


@pytest.mark.parametrize(
    ("by", "words"),
    [("owner", ", by owner;"), ({"label": "app"}, ", by label app;"), ({"cel": "'x'"}, ", by a CEL expression;")],
)
def test_the_group_is_told(explain, by, words):
    assert any(words in line for line in explain(*jobs(1), ttl="0s", keepLast=2, keepLastBy=by, output="text"))


def test_failed_ones_are_counted_apart(explain):
    lines = explain(*jobs(1), job(failed=ago(9)), ttl="0s", keepLast=1, keepLastFailed=3, output="text")
    assert "  keeper    policy rule ci keeps the newest 3 failed ones; none finished later" in lines


def test_what_moves_the_due_instant_is_named(explain):
    (told,) = explain(job(complete=ago(60), ttl=10), minAge="5m")
    assert (told["decision"], told["movedBy"]) == ("wait", "minAge of policy rule ci")
    (line,) = [
        one for one in explain(job(complete=ago(60)), ttl="1s", minAge="5m", output="text") if one.startswith("  due")
    ]
    assert line.endswith("(in 4m), moved by minAge of policy rule ci")


def test_namespaces_of_the_same_file_count_and_are_not_told_of(explain):
    (told,) = explain(namespace("ci", max_ttl="30s"), job(complete=ago(60)), ttl="1h")
    assert (told["decision"], told["movedBy"]) == ("expire", "the namespace's max-ttl")
    (told,) = explain(namespace("ci", exempt="true"), job(complete=ago(60)), ttl="1s")
    assert told["reason"] == "exempt"
    (told,) = explain(namespace("other", exempt="true"), job(complete=ago(60)), ttl="1s")
    assert told["reason"] == "expired"


def test_the_selector_of_a_rule_sees_their_labels(explain):
    match = {"kinds": ["jobs"], "namespaces": {"selector": {"matchLabels": {"tier": "ci"}}}}
    (told,) = explain(namespace("ci", labels={"tier": "ci"}), job(complete=ago(60)), match=match, ttl="1s")
    assert told["decision"] == "expire"
    (told,) = explain(job(complete=ago(60)), match=match, ttl="1s")
    assert told["reason"] == "no-ttl"


def test_an_owner_of_the_file_that_works_keeps_what_it_made(explain):
    owner = job(name="owner", uid="owner-uid")
    made = owned_by(pod(containers=({"name": "main", "state": {"terminated": {"exitCode": 0}}},)), "Job")
    assert explain(owner, made, ttl="1s")[1]["decision"] == "ignore"


def test_what_a_cronjob_made_may_go_while_it_goes_on(explain):
    assert explain(owned_by(job(complete=ago(60)), "CronJob"), ttl="1s")[0]["decision"] == "expire"


def test_a_bad_policy_is_told_with_its_place(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("apiVersion: ttlafterfinished.dev/v1\nkind: Policy\nrules:\n  - name: x\n")
    result = CliRunner().invoke(main, ["explain", "-f", "-", "--policy", str(path)], input="")
    assert result.exit_code == 1
    assert result.output.startswith("Error: policy.yaml:4: rules.0.match")
