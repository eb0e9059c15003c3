"""Properties of all shipped rules, and the fields of single rules that protect data."""

import pytest

from shared.adapters.config.kind_files import KINDS, read_rule_files
from shared.adapters.config.yaml_file import read_model
from shared.core.kinds.rule import KindRule
from tests.builders import ROOT, kind_cases, shipped_kinds

RULES = {rule.name: rule for rule in shipped_kinds().rules}
FILES = read_rule_files()

HANDLES_TO_DATA = (
    "backups.velero.io",
    "podvolumebackups.velero.io",
    "datauploads.velero.io",
    "backups.longhorn.io",
    "systembackups.longhorn.io",
    "backups.postgresql.cnpg.io",
    "perconaxtradbclusterbackups.pxc.percona.com",
    "perconaservermongodbbackups.psmdb.percona.com",
    "perconapgbackups.pgv2.percona.com",
    "virtualmachinesnapshots.snapshot.kubevirt.io",
    "datavolumes.cdi.kubevirt.io",
)

# Owners that count or need their dependents, or would recreate them.
OWNERS_IN_NEED = (
    "replicasets.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "replicationcontrollers",
    "rollouts.argoproj.io",
    "images.kpack.io",
    "dataimportcrons.cdi.kubevirt.io",
    "virtualmachines.kubevirt.io",
)


@pytest.mark.parametrize("name", HANDLES_TO_DATA)
def test_handle_to_data_is_an_opt_in_kind(name):
    assert RULES[name].opt_in


@pytest.mark.parametrize("name", HANDLES_TO_DATA)
def test_handle_to_data_has_no_native_ttl(name):
    """Velero's spec.ttl counts from the start of the backup; the others have none."""
    assert RULES[name].ttl is None


@pytest.mark.parametrize("name", OWNERS_IN_NEED)
def test_owner_that_needs_its_dependents_keeps_them(name):
    assert RULES[name].never_finishes
    assert RULES[name].dependents == "held"


def test_dependents_of_a_schedule_expire_while_it_exists():
    free = {name for name, rule in RULES.items() if rule.dependents == "free"}

    assert {"cronjobs.batch", "cronworkflows.argoproj.io", "schedules.chaos-mesh.org", "schedules.k8up.io"} <= free
    assert not free & {*OWNERS_IN_NEED}
    assert all(RULES[name].never_finishes for name in free)


def test_only_owners_that_count_active_pods_alone_have_replaced_the_finished_ones():
    """A DaemonSet or a StatefulSet starts another Pod when a finished one is deleted."""
    replacing = {name: rule.replaces_finished for name, rule in RULES.items() if rule.replaces_finished}

    assert replacing == {"replicasets.apps": ("pods",), "replicationcontrollers": ("pods",)}


@pytest.mark.parametrize("name", ["nodes", "sandboxes.agents.x-k8s.io", "sandboxclaims.extensions.agents.x-k8s.io"])
def test_dependents_that_a_finished_owner_would_recreate_are_kept(name):
    assert RULES[name].dependents == "kept"
    assert RULES[name].keeps_dependents(is_finished=True)


@pytest.mark.parametrize("page", ["README.md", "docs/explanation/kinds.md"])
def test_pages_count_the_kinds(page):
    rules = shipped_kinds().rules
    finishing = [rule for rule in rules if not rule.never_finishes]
    opt_in = sum(1 for rule in finishing if rule.opt_in)
    never = len(rules) - len(finishing)
    counts = f"{len(finishing)} kinds finish, {opt_in} of them are opt-in; {never} never finish"
    assert counts in (ROOT / page).read_text()


@pytest.mark.parametrize(
    "name",
    [
        "jobs.batch.volcano.sh",
        "jobsets.jobset.x-k8s.io",
        "customruns.tekton.dev",
        "challenges.acme.cert-manager.io",
        "dnschaos.chaos-mesh.org",
        "datadownloads.velero.io",
        "virtualmachineinstances.kubevirt.io",  # a virtual machine needs these two
        "datavolumes.cdi.kubevirt.io",
    ],
)
def test_object_that_its_owner_needs_or_would_recreate_is_kept_while_its_owner_is_unfinished(name):
    assert RULES[name].while_owner_unfinished == "keep"


def test_each_rule_file_begins_with_its_source_and_has_fixtures():
    assert [file.path.name for file in FILES if not file.path.read_text().startswith("# ")] == []
    assert {file.path.stem for file in FILES} == kind_cases().keys()


def test_files_are_named_after_their_kinds():
    short = {"job", "pod", "trainjob"}
    # One plural of one group can stand for two kinds of object, in two versions.
    named = [file for file in FILES if file.path.stem not in short and not file.path.stem.startswith("mpijobs-")]

    assert [file.path.stem for file in named] == [file.rule.name for file in named]
    assert len(FILES) == len(list(KINDS.glob("*.yaml")))


def test_each_shipped_rule_passes_the_checks_of_a_users_rule():
    """A process does not check duplicate keys, depth and CEL of shipped rules at its start; this test does."""
    assert [file.path.name for file in FILES if read_model(file.path, KindRule) != file.rule] == []
