"""A pass over all carriers: what it lists, and what makes it incomplete."""

from dataclasses import replace
from datetime import timedelta

import pytest

from shared.core.objects import ObjectRef, ref_of
from shared.core.references.reference import TargetKind
from shared.errors import ForbiddenError, TryLaterError
from shared.evaluation.usage import UsageReader
from shared.ports import ListableKind, ListableKinds, Page, Target, TargetPage, Unreadable
from tests.builders import NOW
from tests.references import shipped_carriers
from tests.unused import config_map

pytestmark = pytest.mark.anyio

PODS = ListableKind(("v1",), "pods", "Pod", is_namespaced=True)
INGRESSES = ListableKind(("networking.k8s.io/v1",), "ingresses", "Ingress", is_namespaced=True)
CONFIG_MAPS = ListableKind(("v1",), "configmaps", "ConfigMap", is_namespaced=True)
EVENTS = ListableKind(("v1",), "events", "Event", is_namespaced=True)
GIZMOS = ListableKind(("example.com/v2", "example.com/v1"), "gizmos", "Gizmo", is_namespaced=True)
JOBS = ListableKind(("batch/v2", "batch/v1"), "jobs", "Job", is_namespaced=True)
OLD = config_map("old", namespace="ci")


def pod(name, config, namespace="ci"):
    volumes = [{"name": "v", "configMap": {"name": config}}]
    meta = {"name": name, "namespace": namespace, "uid": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"volumes": volumes}}


class Listing:
    """A cluster whose answers are given: the pages of each kind, or the error of its LIST."""

    def __init__(self, *kinds, problem="", **pages):
        self.kinds, self.problem, self.pages = kinds, problem, pages
        self.asked = []

    async def list_kinds(self):
        if isinstance(self.problem, Exception):
            raise self.problem
        return ListableKinds(self.kinds, NOW, self.problem)

    async def list_objects(self, kind, *, namespace="", continue_token=""):
        self.asked.append((kind.name, kind.api_version, namespace, continue_token))
        pages = self.pages.get(kind.plural, [page()])
        if isinstance(pages, Exception):
            raise pages
        place = int(continue_token or 0)
        token = str(place + 1) if place + 1 < len(pages) else ""
        return replace(pages[place], continue_token=token)

    async def list_targets(self, kind, *, namespace="", continue_token=""):
        self.asked.append((f"{kind}", "v1", namespace, continue_token))
        return TargetPage([Target(OLD, NOW)], NOW, "", "7")

    async def get_with_data(self, kind, namespace, name):
        raise AssertionError("a pass reads no data")

    async def get_target(self, kind, namespace, name):
        return Target(OLD, NOW)


def page(*items, version="7", unreadable=(), at=NOW):
    return Page([*items], at, "", version, unreadable)


async def look(listing, namespace=""):
    return await UsageReader(listing, shipped_carriers()).look(namespace=namespace)


async def test_pass_finds_the_references_of_all_pages():
    late = NOW + timedelta(seconds=9)
    listing = Listing(PODS, CONFIG_MAPS, pods=[page(pod("a", "new")), page(pod("b", "old"), at=late)])

    found = await look(listing)

    assert found.of.versions == {"pods": "7", "configmaps": "7"}
    assert (found.of.started_at, found.of.completed_at, found.of.find_problem()) == (NOW, late, "")
    assert [one.source.name for one in found.observe(OLD).references] == ["b"]


async def test_kind_that_refers_to_none_is_not_listed():
    listing = Listing(PODS, EVENTS)
    assert (await look(listing)).of.versions.keys() == {"pods"}


async def test_kind_is_listed_in_the_version_of_its_carrier_rule_else_in_the_preferred_one():
    listing = Listing(GIZMOS, JOBS)
    await look(listing)
    assert sorted(version for _, version, _, _ in listing.asked) == ["batch/v1", "example.com/v2"]


async def test_pass_of_one_namespace_lists_its_workloads_and_all_of_what_may_refer_to_it():
    listing = Listing(PODS, INGRESSES, CONFIG_MAPS, GIZMOS)

    found = await look(listing, "ci")

    places = {name: namespace for name, _, namespace, _ in listing.asked}
    assert places == {"pods": "ci", "ingresses.networking.k8s.io": "", "ConfigMap": "", "gizmos.example.com": ""}
    assert listing.asked[-1][0] == "pods"
    elsewhere = config_map("old", namespace="other")
    assert found.observe(OLD).is_unused
    assert not found.observe(elsewhere).is_unused
    assert "namespace ci" in found.observe(elsewhere).find_problem()


@pytest.mark.parametrize("error", [ForbiddenError("pods is forbidden"), TryLaterError("busy")])
async def test_list_that_fails_is_the_problem_of_the_pass(error):
    found = await look(Listing(PODS, CONFIG_MAPS, pods=error))

    assert found.of.find_problem() == f"pods cannot be listed: {error}"
    assert found.of.versions == {"pods": "", "configmaps": "7"}
    assert not found.observe(OLD).is_unused


async def test_pages_of_several_states_are_the_problem_of_the_pass():
    found = await look(Listing(PODS, pods=[page(), page(version="8")]))
    assert "pods changed during the LIST" in found.of.find_problem()


async def test_stale_discovery_is_the_problem_of_the_pass():
    found = await look(Listing(PODS, problem="discovery of example.com/v1 is stale"))
    assert found.of.find_problem() == "discovery of example.com/v1 is stale"


async def test_unreadable_object_may_refer_to_each_object():
    left_out = Unreadable(ObjectRef("v1", "Pod", "other", "deep", "u"), "at most 150 levels")

    seen = (await look(Listing(PODS, pods=[page(unreadable=[left_out])]))).observe(OLD)

    assert not seen.is_used
    assert not seen.is_unused
    assert "at most 150 levels" in seen.find_problem()


@pytest.mark.parametrize("listing", [Listing(problem=TryLaterError("away")), Listing(PODS, pods=TryLaterError("away"))])
async def test_api_server_that_is_away_raises(listing):
    with pytest.raises(TryLaterError):
        await look(listing)


async def test_targets_are_the_pages_of_metadata():
    reader = UsageReader(Listing(PODS), shipped_carriers())
    pages = [page async for page in reader.targets(TargetKind.CONFIG_MAP)]
    assert [ref_of(one.obj).name for page in pages for one in page] == ["old"]
