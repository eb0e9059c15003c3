"""What `kinds manifests` prints: the rights that the code needs and no other, and the components that are shipped."""

import re

import pytest
import yaml
from click.testing import CliRunner

from shared.cli.main import main
from shared.errors import TtlError
from shared.installation.guards import guards
from shared.installation.kind_manifests import (
    COMPONENTS,
    deadline_deletes,
    identity_of,
    is_watchable,
    join,
    source_name,
)
from shared.installation.rbac import Right, delete_at_deadline, needs_of
from tests.builders import JOB, kind_rule, kind_rules
from tests.manifests.test_manifests import KNATIVE, NAMESPACE

FINISHING = {name: rule for name, rule in kind_rules().items() if not rule.never_finishes}
ROLES = {role: role for role in ("expire", "enforce", "archive", "sweep", "ui")} | {"watch": "source"}
LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def joining(*rules, with_source=False):
    return [one.body for one in join(rules, namespace=NAMESPACE, with_source=with_source)]


def rights_of(bodies, component):
    """The rights of an account, aggregated as the control plane does."""
    label = f"ttlafterfinished.dev/aggregate-to-{component}"
    roles = [body for body in bodies if body["metadata"]["labels"].get(label) == "true"]
    return {
        Right(group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("name", FINISHING)
def test_every_kind_gets_exactly_the_rights_that_the_code_uses(name):
    rule = FINISHING[name]
    for role, component in ROLES.items():
        # What an account needs for no kind in particular, namespaces and Events, it has already.
        assert rights_of(joining(rule), component) == needs_of(role, [rule]) - needs_of(role, ()), component
    if is_watchable(rule):
        assert rights_of(joining(rule, with_source=True), "source") == needs_of("source", [rule])


@pytest.mark.parametrize("name", COMPONENTS)
def test_shipped_components_equal_the_generated_ones(name):
    folders = (f"kind-{name}/rbac.yaml", f"source-apiserver/{name}/rbac.yaml", f"source-apiserver/{name}/source.yaml")
    texts = [(KNATIVE / "components" / folder).read_text() for folder in folders]

    assert [one for text in texts for one in yaml.safe_load_all(text)] == joining(kind_rule(name), with_source=True)


@pytest.mark.parametrize("name", COMPONENTS)
def test_comments_of_components_equal_the_generated_ones(name):
    comments = [one.about for one in join([kind_rule(name)], namespace=NAMESPACE, with_source=True)]
    folders = (f"kind-{name}/rbac.yaml", f"source-apiserver/{name}/rbac.yaml", f"source-apiserver/{name}/source.yaml")
    texts = "\n".join((KNATIVE / "components" / folder).read_text() for folder in folders)

    assert re.findall(r"^# (.*)$", texts, re.MULTILINE) == comments


DELETED = sorted(name for name in COMPONENTS if kind_rule(name).deadline)
"""Kinds that know a deadline: only an operator's opt-in lets `enforce` delete their objects."""


@pytest.mark.parametrize("name", DELETED)
def test_opt_in_to_deletions_at_the_deadline_equals_the_generated_one(name):
    text = (KNATIVE / "components/deadline-delete" / name / "rbac.yaml").read_text()
    made = list(deadline_deletes([kind_rule(name)]))
    assert list(yaml.safe_load_all(text)) == [one.body for one in made]
    assert re.findall(r"^# (.*)$", text, re.MULTILINE) == [one.about for one in made]
    assert rights_of([one.body for one in made], "enforce") == delete_at_deadline([kind_rule(name)])


def test_command_adds_the_deletion_at_the_deadline_only_on_request():
    words = ("job", "--only", "rights")
    plain, asked = (list(yaml.safe_load_all(run(*words, *more).stdout)) for more in ((), ("--delete-at-deadline",)))
    assert "delete" not in {right.verb for right in rights_of(filter(None, plain), "enforce")}
    assert [one for one in asked if one not in plain] == [one.body for one in deadline_deletes([JOB])]


def test_every_kind_with_components_is_tested():
    components = KNATIVE / "components"
    assert sorted(path.name for path in (components / "deadline-delete").iterdir()) == DELETED
    assert {path.name.removeprefix("kind-") for path in components.glob("kind-*")} == COMPONENTS.keys()
    assert {path.name for path in (components / "source-apiserver").iterdir()} == COMPONENTS.keys()


def test_names_of_kinds_are_unique():
    names = {rule.name for rule in FINISHING.values()}
    bodies = [
        body
        for rule in FINISHING.values()
        for body in joining(rule, with_source=is_watchable(rule))
        if rule == next(other for other in FINISHING.values() if other.name == rule.name)
    ]
    assert len({(body["kind"], body["metadata"]["name"]) for body in bodies}) == len(bodies)
    assert len({source_name(rule) for rule in FINISHING.values()}) == len(names)


def test_name_of_a_source_fits_the_derived_names_of_knative():
    for rule in FINISHING.values():
        assert LABEL.fullmatch(source_name(rule))
        account = identity_of(rule, NAMESPACE).rpartition(":")[2]
        assert account.startswith(f"{source_name(rule)}-oidc-")
        assert len(account) <= 63, "Knative would shorten it"


def test_names_of_generated_objects_do_not_change():
    """Clusters and users' EventPolicies contain these names."""
    assert source_name(kind_rule("workflows.argoproj.io")) == "workflows-b286b7"
    (role, *_) = joining(kind_rule("workflows.argoproj.io"))
    assert role["metadata"]["name"] == "ttl-after-finished-expire-workflows.argoproj.io"
    identity = identity_of(kind_rule("workflows.argoproj.io"), NAMESPACE)
    assert f'{{sub: "{identity}"}}' in (KNATIVE.parent / "docs/explanation/overlays.md").read_text()


def test_rules_of_one_kind_share_their_objects():
    rules = [rule for rule in FINISHING.values() if rule.name == "mpijobs.kubeflow.org"]
    assert len(rules) == 2
    assert len(joining(*rules, with_source=True)) == len(joining(JOB, with_source=True))
    assert rights_of(joining(*rules), "sweep") == needs_of("sweep", rules) - needs_of("sweep", ())


@pytest.mark.parametrize(
    ("kind", "plural", "holds"),
    [
        ("Job", "jobs", True),
        ("PodChaos", "podchaos", False),
        ("PodChaos", "podchaoses", True),
        ("Policy", "policies", True),
        ("Policy", "policys", False),  # codespell:ignore policys
    ],
)
def test_source_of_a_kind_with_an_irregular_plural_is_rejected(kind, plural, holds):
    rule = JOB.model_copy(update={"kind": kind, "plural": plural})
    assert is_watchable(rule) is holds
    if not holds:
        with pytest.raises(TtlError, match=r"an ApiServerSource would look for .* expected --source watch"):
            joining(rule, with_source=True)


# The command


def run(*words):
    return CliRunner(env={"TTL_KINDS_DIR": None}).invoke(main, ["kinds", "manifests", *map(str, words)])


def test_command_prints_documents_that_can_be_applied():
    result = run("workflows.argoproj.io", "pods", "--source", "apiserver", "--namespace", "elsewhere")
    assert result.exit_code == 0
    bodies = [body for body in yaml.safe_load_all(result.stdout) if body]
    rules = [kind_rule("pod"), kind_rule("workflows.argoproj.io")]
    assert bodies == [
        *(one.body for one in join(rules, namespace="elsewhere", with_source=True)),
        *(one.body for one in guards(rules, "elsewhere")),
    ]
    assert {body["metadata"].get("namespace") for body in bodies if body["kind"] == "ApiServerSource"} == {"elsewhere"}


def test_command_prints_no_source_by_default():
    assert "ApiServerSource" not in run("workflows.argoproj.io").output.replace("components/source-watch", "")


def test_header_of_the_output_names_the_settings_to_change():
    head = run("backups.velero.io", "taskruns", "--source=apiserver").output.partition("---")[0]
    assert all(line.startswith("# ") for line in head.splitlines())
    assert "or include: backups.velero.io,taskruns.tekton.dev\n" in head
    assert "backups.velero.io: opt-in, deleted only if the object or a policy rule that names the kind" in head
    assert "taskruns.tekton.dev: if a cluster serves it only as tekton.dev/v1beta1" in head
    assert f"  - sub: {identity_of(kind_rule('taskruns.tekton.dev'), NAMESPACE)}\n" in head


def test_command_accepts_a_kind_of_the_user(tmp_path):
    rule = "apiVersions: [example.com/v1]\nkind: Render\nplural: renders\nfinishedAt: [status.end]\n"
    (tmp_path / "renders.yaml").write_text(f"{rule}finished: {{field: status.phase, values: {{Done: succeeded}}}}\n")
    result = run("renders", "--kinds-dir", tmp_path)
    assert "renders.example.com: your own rule; also add renders.yaml to components/kinds" in result.output
    assert "ttl-after-finished-sweep-renders.example.com" in result.output


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("gizmos", "unknown kind 'gizmos'"),
        ("cronjobs.batch", "'cronjobs.batch' never finishes"),
        ("backups", "'backups' is ambiguous"),
    ],
)
def test_command_rejects_a_name_that_is_not_a_finishing_kind(word, said):
    result = run(word)
    assert result.exit_code == 2
    assert said in result.output
