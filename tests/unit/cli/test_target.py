"""The kind and the object that a word of the command line means on a cluster."""

import click
import pytest

from shared.cli.input.target import find_kinds, find_rule, parse_target, ref_to
from shared.core.kinds.rule import Catalogue
from shared.errors import TtlError
from tests.builders import JOB, POD
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

ARGO = JOB.model_copy(update={"api_versions": ("argoproj.io/v1alpha1",), "kind": "Workflow", "plural": "workflows"})
CHAOS = ARGO.model_copy(update={"api_versions": ("chaos-mesh.org/v1alpha1",), "kind": "ChaosWorkflow"})
KINDS = Catalogue((JOB, POD, ARGO, CHAOS))


def cluster_with(*rules):
    cluster = FakeCluster()
    cluster.serve_only(*rules)
    return cluster


@pytest.mark.parametrize("words", [("job/x",), ("job", "x"), ("jobs.batch/x",)])
def test_target_is_parsed_as_kubectl_does(words):
    assert parse_target(words, KINDS) == ((JOB,), "x")


@pytest.mark.parametrize(
    "words", [(), ("job",), ("job/",), ("/x",), ("job", "x", "y"), ("pod/a/b",), ("job/a", "job/b"), ("pod", "a/b")]
)
def test_target_without_kind_or_name_is_rejected(words):
    with pytest.raises(click.UsageError, match="expected KIND/NAME"):
        parse_target(words, KINDS)


def test_unknown_kind_is_rejected_with_a_suggestion():
    with pytest.raises(click.UsageError, match=r"'jobz'.* jobs\b"):
        parse_target(("jobz/x",), KINDS)


async def test_shared_name_means_the_served_kind():
    rules, _ = parse_target(("workflows/x",), KINDS)
    assert await find_rule(cluster_with(CHAOS), rules, "workflows/x") == CHAOS


@pytest.mark.parametrize(
    ("served", "message"),
    [
        (
            (ARGO, CHAOS),
            "'workflows' is ambiguous on this cluster: expected one of workflows.argo",
        ),
        ((), "this cluster does not serve workflows.argoproj.io, workflows.chaos-mesh.org"),
    ],
)
async def test_ambiguous_or_unserved_kind_is_rejected_with_its_names(served, message):
    with pytest.raises(TtlError, match=message):
        await find_rule(cluster_with(*served), (ARGO, CHAOS), "workflows")


async def test_cluster_is_asked_only_for_words_of_several_kinds():
    cluster = cluster_with(ARGO)
    assert (await find_kinds(cluster, KINDS, "workflows, pods")).rules == (POD, ARGO)
    assert (await find_kinds(cluster_with(), KINDS, "jobs")).rules == (JOB,)
    assert (await find_kinds(cluster, KINDS, "")).rules == KINDS.rules


@pytest.mark.parametrize("word", ["jobz", "cronjob"])
async def test_unknown_kind_is_rejected_with_its_option(word):
    never = POD.model_copy(update={"kind": "CronJob", "never_finishes": "it makes Jobs"})
    with pytest.raises(TtlError, match=r"^--kinds: "):
        await find_kinds(cluster_with(), Catalogue((JOB, never)), word)
    with pytest.raises(TtlError, match=r"^TTL_KINDS: "):
        await find_kinds(cluster_with(), Catalogue((JOB, never)), word, named_by="TTL_KINDS")


def test_reference_to_a_cluster_scoped_object_has_no_namespace():
    assert ref_to(JOB, "ci", "x").namespace == "ci"
    assert ref_to(JOB.model_copy(update={"scope": "Cluster"}), "ci", "x").namespace == ""
