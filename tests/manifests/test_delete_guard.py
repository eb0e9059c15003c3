"""The delete guard as manifests: its accounts and kinds. tests/unit/installation covers its refusals."""

import re

import pytest
import yaml
from click.testing import CliRunner

from shared.cli.main import main
from shared.core.kinds.rule import Catalogue
from shared.installation.guards import (
    ACCOUNTS,
    NOT_CHECKED,
    VERSION,
    binds,
    can_stop,
    guard,
    guard_name,
    guards,
    stop_guard,
    stop_guard_name,
)
from shared.installation.kind_manifests import COMPONENTS
from shared.installation.rbac import STOPPERS
from tests.builders import kind_rule, kind_rules
from tests.manifests.composed import overlay_of
from tests.manifests.test_manifests import (
    DELETERS,
    KNATIVE,
    NAMESPACE,
    build,
    of_kind,
    rules_of,
    settings_of,
)

GUARDED = ["overlays/knative", "overlays/production", "overlays/production-nats", "overlays/standalone"]
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"


def run(*words):
    result = CliRunner(env={"TTL_KINDS_DIR": None}).invoke(main, ["kinds", "manifests", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result.stdout


def policies_of(objects):
    return {name: obj for name, obj in of_kind(objects, POLICY).items() if "delete-guard" in name}


@pytest.mark.parametrize("name", COMPONENTS)
def test_shipped_components_equal_the_generated_ones(name):
    made = run(kind_rule(name).name, "--only", "guard")
    assert (KNATIVE / "components/delete-guard" / name / "policy.yaml").read_text() == made


@pytest.mark.parametrize("folder", GUARDED)
def test_overlay_guards_the_kinds_that_it_enables(folder):
    objects = build(KNATIVE / folder)
    enabled = Catalogue(tuple(kind_rules().values())).parse_names(settings_of(objects).kinds).rules
    made = [one.body for one in guards(enabled, NAMESPACE)]
    for kind in (POLICY, BINDING):
        specs = {obj["metadata"]["name"]: obj["spec"] for obj in made if obj["kind"] == kind}
        assert {name: obj["spec"] for name, obj in of_kind(objects, kind).items() if name in specs} == specs
    assert policies_of(objects).keys() == {guard_name(rule) for rule in enabled}
    stops = {name for name in of_kind(objects, POLICY) if "stop-guard" in name}
    assert stops == {stop_guard_name(rule) for rule in enabled if can_stop([rule])}


@pytest.mark.parametrize("folder", GUARDED)
def test_guard_binds_every_account_that_may_delete_and_none_may_change_it(folder):
    objects = build(KNATIVE / folder)
    for account in of_kind(objects, "ServiceAccount"):
        rules = rules_of(objects, account)
        deletes = any("delete" in rule["verbs"] and "apps" not in rule["apiGroups"] for rule in rules)
        assert deletes is (account in DELETERS)
        assert not any({"admissionregistration.k8s.io", "*"} & set(rule["apiGroups"]) for rule in rules)
        assert not any(
            {"impersonate", "escalate", "bind", "deletecollection", "*"} & set(rule["verbs"]) for rule in rules
        )
        for policy in policies_of(objects).values():
            (condition,) = policy["spec"]["matchConditions"]
            assert condition["expression"] == binds(NAMESPACE)
            assert account in ACCOUNTS or not deletes
            assert account in STOPPERS or not any("patch" in rule["verbs"] for rule in rules)


def test_guard_of_an_overlay_with_another_namespace_binds_its_accounts():
    """As docs/explanation/overlays.md has it: kustomize does not know that an expression names a namespace."""
    text = (KNATIVE.parent / "docs/explanation/overlays.md").read_text()
    (snippet,) = re.findall(r"```yaml\n(namespace: .*?)```", text, re.DOTALL)
    said = yaml.safe_load(snippet)
    objects = overlay_of({"components": ["kind-job", "delete-guard/job", "delete-guard/pod"], **said})
    policies = policies_of(objects)
    assert len(policies) == 2
    for policy in policies.values():
        (condition,) = policy["spec"]["matchConditions"]
        assert condition["expression"] == binds(said["namespace"])


def test_command_prints_the_guard_with_the_rights():
    made = run("workflows.argoproj.io", "mpijobs", "-n", "elsewhere", "--user", "o'hara")
    printed = [one for one in yaml.safe_load_all(made) if one]
    rules = Catalogue(tuple(kind_rules().values())).parse_names(("workflows.argoproj.io", "mpijobs")).rules
    expected = [one.body for one in guards(rules, "elsewhere", ["o'hara"])]
    assert [one for one in printed if one["kind"] in (POLICY, BINDING)] == expected
    names = [one["metadata"]["name"] for one in expected if one["kind"] == POLICY]
    assert len([name for name in names if "delete-guard" in name]) == 2, "two rules of one kind are one kind"
    assert {one["kind"] for one in printed} == {"ClusterRole", POLICY, BINDING}
    rights = [one for one in yaml.safe_load_all(run("mpijobs", "--only", "rights")) if one]
    assert {one["kind"] for one in rights} == {"ClusterRole"}


def test_rule_of_a_user_gets_a_guard(tmp_path):
    rule = "apiVersions: [example.com/v1]\nkind: Render\nplural: renders\nfinishedAt: [status.end]\n"
    (tmp_path / "renders.yaml").write_text(f"{rule}finished: {{field: status.phase, values: {{Done: succeeded}}}}\n")
    policy, _ = (one for one in yaml.safe_load_all(run("renders", "--only", "guard", "--kinds-dir", tmp_path)) if one)
    assert policy["metadata"]["name"] == "ttl-after-finished-delete-guard-renders.example.com"
    assert policy["spec"]["validations"][-1]["expression"] == (
        "oldObject.apiVersion == 'example.com/v1' && oldObject.?status.?phase.orValue('') == 'Done'"
    )


def test_guard_names_the_version_of_its_rule_and_what_it_does_not_check():
    for rule in kind_rules().values():
        if not rule.never_finishes:
            policy, binding = guard([rule], NAMESPACE)
            version = policy["metadata"]["annotations"][VERSION]
            assert f"version {version} of the rule for {rule.name}" in policy["spec"]["validations"][-1]["message"]
            if can_stop([rule]):
                stops, _ = stop_guard([rule], NAMESPACE)
                assert f"version {version}" in stops["spec"]["validations"][-1]["message"]
            words = ("clock", "polic", "keepLast", "owner")
            assert all(word in policy["metadata"]["annotations"][NOT_CHECKED] for word in words)
            assert binding["metadata"]["name"] == policy["metadata"]["name"] == binding["spec"]["policyName"]
            assert len(policy["metadata"]["name"]) <= 253
