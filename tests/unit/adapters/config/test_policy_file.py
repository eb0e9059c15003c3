"""The policy file: a change is in force after the next read, and an invalid one changes nothing."""

import json
import os

import pytest

from shared.adapters.config.policy_file import POLICY_POLL_SECONDS, PolicyFile, parse_policy, read_policy
from shared.adapters.config.settings import read_settings
from shared.adapters.config.yaml_file import FileError
from shared.bootstrap.config import read_config
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY
from tests.builders import JOB, POD, shipped_kinds
from tests.fakes import FakeTelemetry
from tests.reference.policy import schema

KINDS = Catalogue((JOB, POD))
GOOD = """
apiVersion: ttlafterfinished.dev/v1
kind: Policy
rules:
  - name: one
    match: {kinds: [jobs]}
    ttl: 1h
"""
BETTER = GOOD.replace("1h", "2h")


class Bench:
    def __init__(self, folder):
        self.path, self.now = folder / "policy.yaml", 0.0
        self.problems: list[str] = []
        self.path.write_text(GOOD)
        self.file = PolicyFile(self.path, KINDS, self.problems.append, clock=lambda: self.now)

    def look(self):
        self.now += POLICY_POLL_SECONDS
        return str(self.file.policy().rules[0].ttl)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_new_content_is_in_force_after_the_next_read(bench):
    assert bench.look() == "1h"
    bench.path.write_text(BETTER)

    assert bench.look() == "2h"
    assert bench.problems == []


def test_policy_file_is_not_read_for_each_object(bench):
    bench.path.write_text(BETTER)

    assert str(bench.file.policy().rules[0].ttl) == "1h"


def test_policy_with_unchanged_content_is_not_parsed_again(bench):
    before = bench.file.policy()
    bench.path.write_text(GOOD)
    bench.look()

    assert bench.file.policy() is before


def test_mounted_config_map_is_reread_after_its_link_changes(tmp_path):
    for name, text in (("..1", GOOD), ("..2", BETTER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.yaml").write_text(text)
        os.utime(tmp_path / name / "policy.yaml", (0, 0))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "policy.yaml").symlink_to("..data/policy.yaml")
    now = [0.0]
    file = PolicyFile(tmp_path / "policy.yaml", KINDS, pytest.fail, clock=lambda: now[0])
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    now[0] += POLICY_POLL_SECONDS

    assert str(file.policy().rules[0].ttl) == "2h"


@pytest.mark.parametrize("bad", ["", "rules: [", GOOD.replace("ttl: 1h", "ttl: soon"), "\ud800", None])
def test_invalid_policy_keeps_the_last_valid_one_and_is_reported_once(bench, bad):
    if bad is None:
        bench.path.unlink()
    else:
        bench.path.write_bytes(bad.encode(errors="surrogatepass"))

    assert [bench.look() for _ in range(3)] == ["1h"] * 3
    assert len(bench.problems) == 1
    assert bench.file.problem == bench.problems[0]
    assert not bench.file.is_good

    bench.path.write_text(BETTER)

    assert bench.look() == "2h"
    assert bench.file.is_good


def test_policy_restored_after_an_invalid_one_is_in_force(bench):
    bench.path.write_text("rules: [")
    bench.look()
    bench.path.write_text(GOOD)

    assert bench.look() == "1h"
    assert bench.file.is_good


def test_invalid_policy_at_start_is_an_error(tmp_path):
    (tmp_path / "policy.yaml").write_text("rules: 7")

    with pytest.raises(FileError, match=r"^policy.yaml:1: rules: expected"):
        PolicyFile(tmp_path / "policy.yaml", KINDS, pytest.fail)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            GOOD.replace("1h", "soon"),
            "policy.yaml:7: rules.0.ttl: ",
        ),
        (GOOD.replace("jobs", "jbos"), "policy.yaml:6: rules.0.match.kinds.0: "),
        (GOOD + "    when: object.spec +\n", "policy.yaml:8: rules.0.when: "),
        (GOOD + "    keepLast: 0\n", "policy.yaml:8: rules.0.keepLast: "),
        (GOOD + "    ttls: 1h\n", "policy.yaml:8: rules.0.ttls: "),
        (GOOD.replace("kind: Policy", "kind: Police"), "policy.yaml:3: kind: expected 'Policy', got 'Police'"),
    ],
)
def test_policy_error_names_line_field_and_expected_value(tmp_path, bad, message):
    (tmp_path / "policy.yaml").write_text(bad)

    with pytest.raises(FileError) as raised:
        read_policy(tmp_path / "policy.yaml", KINDS)

    assert str(raised.value).startswith(message)


def test_list_with_invalid_items_is_not_reported_as_empty(tmp_path):
    bad = GOOD.replace("kinds: [jobs]", "kinds: [jobs], labels: {matchExpressions: [{key: a, operator: Exist}]}")
    (tmp_path / "policy.yaml").write_text(bad)

    with pytest.raises(FileError) as raised:
        read_policy(tmp_path / "policy.yaml", KINDS)

    (line,) = str(raised.value).splitlines()
    assert line.startswith("policy.yaml:6: rules.0.match.labels.matchExpressions.0.operator: expected 'In'")


def test_process_uses_the_policy_of_its_settings(tmp_path, monkeypatch):
    file, telemetry = tmp_path / "policy.yaml", FakeTelemetry()
    file.write_text(GOOD)
    monkeypatch.setattr("shared.adapters.config.policy_file.POLICY_POLL_SECONDS", 0.0)
    config = read_config(read_settings({"TTL_POLICY": str(file)}, {}), telemetry=telemetry)
    file.write_text("rules: 1")

    assert config.policy().rules[0].name == "one"
    ((message, fields),) = telemetry.problems
    assert message == "invalid policy file: the last valid policy stays in force"
    assert str(fields["error"]).startswith("policy.yaml:")


def test_process_without_a_policy_file_has_an_empty_policy():
    assert read_config(read_settings({}, {})).policy() is NO_POLICY


def test_schema_rejects_empty_values():
    found = json.loads(schema())

    assert '"null"' not in schema()
    for place, field in (("NamespaceMatch", "names"), ("LabelSelector", "matchLabels"), ("Match", "annotations")):
        limits = found["$defs"][place]["properties"][field]
        assert limits.get("minItems") == 1 or limits.get("minProperties") == 1
        assert "default" not in limits
    for place in ("NamespaceMatch", "LabelSelector", "OwnerMatch", "BudgetLimits"):
        assert found["$defs"][place]["minProperties"] == 1


def test_deeply_nested_policy_is_an_error(tmp_path):
    with pytest.raises(FileError, match="at most 100 levels of nested lists"):
        parse_policy("rules: " + "[" * 50_000 + "]" * 50_000, shipped_kinds(), name="policy.yaml")


def test_ambiguous_kind_name_is_rejected():
    text = "rules: [{name: old, ttl: 1h, match: {kinds: [backups]}}]"

    with pytest.raises(FileError, match=r"expected one of backups\.k8up\.io, .*backups\.velero\.io"):
        parse_policy(text, shipped_kinds(), name="policy.yaml")
