"""A pass over all carriers: what it lists, and what makes it incomplete."""

import asyncio
import itertools
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.core.references.reference import TargetKind, names_of
from shared.core.values.objects import ObjectRef, ref_of
from shared.errors import ForbiddenError, TryLaterError
from shared.evaluation.usage_reader import TURN_SECONDS_MAX, UsageReader
from shared.ports import ListableKind, ListableKinds, Page, Target, TargetPage, Unreadable
from tests.builders import NOW
from tests.references import shipped_carriers
from tests.usage import config_map

pytestmark = pytest.mark.anyio

PODS = ListableKind(("v1",), "pods", "Pod", is_namespaced=True)
INGRESSES = ListableKind(("networking.k8s.io/v1",), "ingresses", "Ingress", is_namespaced=True)
CONFIG_MAPS = ListableKind(("v1",), "configmaps", "ConfigMap", is_namespaced=True)
SECRETS = ListableKind(("v1",), "secrets", "Secret", is_namespaced=True)
EVENTS = ListableKind(("v1",), "events", "Event", is_namespaced=True)
METRICS = ListableKind(("external.metrics.k8s.io/v1beta1",), "s0", "ExternalMetricValueList", is_namespaced=True)
GIZMOS = ListableKind(("example.com/v2", "example.com/v1"), "gizmos", "Gizmo", is_namespaced=True)
JOBS = ListableKind(("batch/v2", "batch/v1"), "jobs", "Job", is_namespaced=True)
OLD = config_map("old", namespace="ci")


def pod(name, config, namespace="ci"):
    volumes = [{"name": "v", "configMap": {"name": config}}]
    meta = {"name": name, "namespace": namespace, "uid": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"volumes": volumes}}


class Listing:
    """A cluster whose answers are given: the pages of each kind, or the error of its LIST."""

    def __init__(self, *kinds, problem="", unlistable=(), targets=([OLD],), target_versions=(), **pages):
        self.kinds, self.problem, self.unlistable, self.pages = kinds, problem, unlistable, pages
        self.target_pages, self.target_versions = targets, target_versions or ["7"] * len(targets)
        self.asked = []

    async def list_kinds(self):
        if isinstance(self.problem, Exception):
            raise self.problem
        return ListableKinds(self.kinds, NOW, self.problem, self.unlistable)

    async def list_objects(self, kind, *, namespace="", continue_token=""):
        self.asked.append((kind.name, kind.api_version, namespace, continue_token))
        pages = self.pages.get(f"{kind.plural}_in_{namespace}", self.pages.get(kind.plural, [page()]))
        if isinstance(pages, Exception):
            raise pages
        place = int(continue_token or 0)
        token = str(place + 1) if place + 1 < len(pages) else ""
        return replace(pages[place], continue_token=token)

    async def list_targets(self, kind, *, namespace="", continue_token=""):
        self.asked.append((f"{kind}", "v1", namespace, continue_token))
        place = int(continue_token or 0)
        token = str(place + 1) if place + 1 < len(self.target_pages) else ""
        targets = [Target(obj, NOW, keys=3, ahead=timedelta(seconds=2)) for obj in self.target_pages[place]]
        return TargetPage(targets, NOW, token, self.target_versions[place])

    async def get_with_data(self, kind, namespace, name):
        raise AssertionError("a pass reads no data")

    async def get_target(self, kind, namespace, name):
        return Target(OLD, NOW)


def page(*items, version="7", unreadable=(), at=NOW):
    return Page([*items], at, "", version, unreadable)


SOME = names_of(
    {"kind": kind, "metadata": {"namespace": place, "name": name}}
    for kind in ("Secret", "ConfigMap")
    for place in ("ci", "other", "web", "ns-3")
    for name in ("used", "unused", "web", "old", "settings", "web-7f9c2")
)


async def look(listing, *namespaces):
    return await UsageReader(listing, shipped_carriers()).look(SOME, namespaces=namespaces)


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


async def test_pass_of_some_namespaces_lists_the_workloads_of_each():
    listing = Listing(PODS, CONFIG_MAPS)

    found = await look(listing, "web", "ci")

    assert [(name, where) for name, _, where, _ in listing.asked] == [
        ("ConfigMap", ""),
        ("pods", "ci"),
        ("pods", "web"),
    ]
    assert found.of.versions == {"pods": "7", "configmaps": "7"}
    assert found.observe(OLD).is_unused
    assert found.observe(config_map("old", namespace="web")).is_unused
    assert not found.observe(config_map("old", namespace="other")).is_unused


@pytest.mark.parametrize(("count", "lists"), [(10, 10), (11, 1)])
async def test_workloads_are_listed_by_namespace_up_to_a_number_of_namespaces(count, lists):
    listing = Listing(PODS)
    namespaces = [f"ns-{number}" for number in range(count)]

    found = await look(listing, *namespaces)

    assert len(listing.asked) == lists
    assert found.observe(config_map("old", namespace="ns-3")).is_unused
    assert "namespace other" in found.observe(config_map("old", namespace="other")).find_problem()


async def test_pass_of_one_namespace_reads_none_of_the_pods_of_the_others():
    """The cost of a pass in a cluster of 40 pages of Pods, of which 2 are of the namespace."""
    everywhere, own = [page(pod("a", "new")) for _ in range(40)], [page(pod("b", "new")) for _ in range(2)]
    before, after = (Listing(PODS, pods=everywhere, pods_in_ci=own) for _ in range(2))

    await look(before)
    await look(after, "ci")

    assert (len(before.asked), len(after.asked)) == (40, 2)


async def test_list_that_fails_in_one_namespace_is_no_problem_of_another():
    listing = Listing(PODS, CONFIG_MAPS, pods_in_web=ForbiddenError("no"))

    found = await look(listing, "ci", "web")

    assert found.of.find_problem() == "pods in namespace web cannot be listed: no"
    assert found.of.versions["pods"] == ""
    assert found.observe(OLD).is_unused
    assert found.observe(OLD).of.versions == {"pods": "7", "configmaps": "7"}
    assert "pods in namespace web" in found.observe(config_map("old", namespace="web")).find_problem()


async def test_pass_of_one_namespace_lists_its_workloads_and_all_of_what_may_refer_to_it():
    listing = Listing(PODS, INGRESSES, CONFIG_MAPS, GIZMOS)

    found = await look(listing, "ci")

    places = {name: namespace for name, _, namespace, _ in listing.asked}
    assert places == {"pods": "ci", "ingresses.networking.k8s.io": "", "ConfigMap": "", "gizmos.example.com": ""}
    assert listing.asked[-1][0] == "pods"
    elsewhere = config_map("old", namespace="other")
    assert found.observe(OLD).is_unused
    assert not found.observe(elsewhere).is_unused
    assert "namespace other" in found.observe(elsewhere).find_problem()


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


async def test_kind_that_cannot_be_listed_is_the_problem_of_the_pass():
    found = await look(Listing(PODS, unlistable=(GIZMOS,)))
    assert found.of.find_problem().startswith("gizmos.example.com is served, and its API server cannot list it")


async def test_kind_that_cannot_be_listed_and_refers_to_none_is_no_problem():
    found = await look(Listing(PODS, unlistable=(EVENTS, METRICS)))
    assert found.of.find_problem() == ""


async def test_unreadable_object_may_refer_to_each_object():
    left_out = Unreadable(ObjectRef("example.com/v2", "Gizmo", "other", "deep", "u"), "at most 150 levels")

    seen = (await look(Listing(GIZMOS, gizmos=[page(unreadable=[left_out])]))).observe(OLD)

    assert not seen.is_used
    assert not seen.is_unused
    assert "at most 150 levels" in seen.find_problem()


async def test_unreadable_object_of_a_kind_that_does_not_cross_concerns_its_own_namespace():
    left_out = Unreadable(ObjectRef("v1", "Pod", "other", "deep", "u"), "at most 150 levels")

    found = await look(Listing(PODS, pods=[page(unreadable=[left_out])]))

    assert found.observe(OLD).is_unused
    assert "at most 150 levels" in found.observe(config_map("old", namespace="other")).find_problem()


async def test_unreadable_object_without_a_namespace_may_refer_to_each_object():
    left_out = Unreadable(ObjectRef("v1", "Pod", "", "", ""), "at most 150 levels")
    found = await look(Listing(PODS, pods=[page(unreadable=[left_out])]))
    assert not found.observe(OLD).is_unused


@pytest.mark.parametrize("listing", [Listing(problem=TryLaterError("away")), Listing(PODS, pods=TryLaterError("away"))])
async def test_api_server_that_is_away_raises(listing):
    with pytest.raises(TryLaterError):
        await look(listing)


async def test_targets_are_the_pages_of_metadata():
    reader = UsageReader(Listing(PODS), shipped_carriers())
    pages = [page async for page in reader.targets(TargetKind.CONFIG_MAP)]
    assert [ref_of(one.obj).name for page in pages for one in page] == ["old"]


async def test_object_that_was_not_looked_for_is_unknown():
    """Its references were not kept: it may have been created since the names were read."""
    found = await look(Listing(PODS, pods=[page(pod("a", "new"))]))

    observed = found.observe(config_map("new"))
    assert not observed.is_unused
    assert observed.find_problem() == "the pass did not look for references to ConfigMap ci/new"


class Refusing(Listing):
    async def list_targets(self, kind, **asked):
        if kind is TargetKind.SECRET:
            raise ForbiddenError("secrets is forbidden")
        return await super().list_targets(kind, **asked)


async def test_names_are_held_of_the_kinds_that_may_be_listed_and_the_namespaces_that_matter():
    held = await UsageReader(Refusing(), shipped_carriers()).hold_targets()

    assert held.names().by_name == {"old": {(TargetKind.CONFIG_MAP, "ci")}}
    assert held.names({"web"}).by_name == {}


async def test_pass_and_decisions_use_the_secrets_and_config_maps_that_are_held():
    copy = config_map("copy", annotations={"replicator.v1.mittwald.de/replicate-from": "ci/old"})
    listing = Listing(PODS, CONFIG_MAPS, SECRETS, targets=[[OLD], [copy]])
    reader = UsageReader(listing, shipped_carriers())

    held = await reader.hold_targets()
    found = await reader.look(held.names(), held=held)
    pages = [page async for page in reader.targets(TargetKind.CONFIG_MAP, held=held)]

    assert Counter(name for name, *_ in listing.asked) == {"Secret": 2, "ConfigMap": 2, "pods": 1}
    assert [[one.obj for one in page] for page in pages] == [[OLD], [copy]]
    assert pages[0][0] == Target(OLD, NOW, keys=3, ahead=timedelta(seconds=2))
    assert {one.source.name for one in found.observe(OLD).references} == {"copy"}
    assert found.of.versions == {"pods": "7", "configmaps": "7", "secrets": "7"}


async def test_pass_over_all_namespaces_lists_what_is_held_of_one_namespace_only():
    listing = Listing(PODS, CONFIG_MAPS)
    reader = UsageReader(listing, shipped_carriers())

    held = await reader.hold_targets(namespace="ci")
    await reader.look(held.names(), held=held)

    assert [(name, where) for name, _, where, _ in listing.asked] == [
        ("Secret", "ci"),
        ("ConfigMap", "ci"),
        ("ConfigMap", ""),
        ("pods", ""),
    ]


async def test_kind_that_may_not_be_held_is_a_problem_of_the_pass_and_of_the_decisions():
    reader = UsageReader(Refusing(PODS, CONFIG_MAPS, SECRETS), shipped_carriers())

    held = await reader.hold_targets()
    found = await reader.look(held.names(), held=held)

    assert found.of.find_problem() == "secrets cannot be listed: secrets is forbidden"
    with pytest.raises(ForbiddenError):
        [page async for page in reader.targets(TargetKind.SECRET, held=held)]


async def test_held_pages_of_several_states_are_a_problem_of_the_pass():
    listing = Listing(PODS, CONFIG_MAPS, targets=[[OLD], [OLD]], target_versions=["7", "8"])
    reader = UsageReader(listing, shipped_carriers())

    held = await reader.hold_targets()
    found = await reader.look(held.names(), held=held)

    assert "configmaps changed during the LIST" in found.of.find_problem()


async def test_api_server_that_is_away_after_the_targets_were_held_raises():
    reader = UsageReader(Listing(PODS, CONFIG_MAPS, pods=TryLaterError("away")), shipped_carriers())
    held = await reader.hold_targets()
    with pytest.raises(TryLaterError):
        await reader.look(held.names(), held=held)


def tenant(kind, **spec):
    meta = {"name": "tenant", "namespace": "ci", "uid": "t"}
    return {"apiVersion": "example.com/v2", "kind": kind, "metadata": meta, "spec": spec}


async def test_template_with_an_unknown_namespace_makes_other_namespaces_unknown_only():
    found = await look(Listing(GIZMOS, gizmos=[page(tenant("Gizmo", secret="${a}/se${b}"))]))
    own, other = (
        found.observe(config_map("settings", namespace=place) | {"kind": "Secret"}) for place in ("ci", "other")
    )

    assert (own.is_used, other.is_used, other.is_unused) == (True, False, False)
    assert "Gizmo ci/tenant: spec.secret: the template 'se*' may name objects of another namespace" in (
        other.find_problem()
    )
    assert found.observe(config_map("web", namespace="other")).is_unused
    assert (found.find_problem(), found.find_unknown()) == ("", {})


@pytest.mark.parametrize(
    "fields",
    [
        {"one": {"kind": "Secret", "namespace": "$(n)", "selector": {}}},
        {"one": {"kinds": ["v1/Secret"], "namespace": "$(n)"}},
        {"one": {"secretName": "$(v)", "namespace": "$(n)"}},
        {"list": [{"secretName": f"z{number}-$(v)", "namespace": "$(n)"} for number in range(101)]},
    ],
    ids=["selector", "kinds", "name", "too many"],
)
async def test_field_of_an_unknown_kind_that_cannot_be_read_stops_its_own_namespace_only(fields):
    found = await look(Listing(GIZMOS, gizmos=[page(tenant("Gizmo", **fields))]))

    assert (found.find_problem(), set(found.find_unknown())) == ("", {"ci"})
    assert found.observe(config_map("web", namespace="other") | {"kind": "Secret"}).is_unused


async def test_object_with_too_many_templates_is_named_and_stops_its_own_namespace_only():
    many = [f"{place}x{number}-${{b}}" for number, place in enumerate(("${a}/", "other/", "") * 34)]
    own = await look(Listing(GIZMOS, gizmos=[page(tenant("Gizmo", list=many))]))
    assert own.find_problem() == ""
    assert own.find_unknown().keys() == {"ci"}
    assert "Gizmo ci/tenant: expected at most 100 templates" in own.find_unknown()["ci"]
    assert own.observe(config_map("web", namespace="other")).is_unused

    of_cluster = tenant("Gizmo", list=[f"${{a}}/x{number}-${{b}}" for number in range(101)])
    del of_cluster["metadata"]["namespace"]
    found = await look(Listing(GIZMOS, gizmos=[page(of_cluster)]))
    assert found.find_problem().startswith("Gizmo tenant: expected at most 100 templates")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the tasks take turns in their order
async def test_long_object_lets_other_tasks_run(monkeypatch):
    parts = itertools.count()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: next(parts) * TURN_SECONDS_MAX)
    text = " ".join(f"{number:x}.example/x" for number in range(60_000))
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await look(Listing(GIZMOS, gizmos=[page(tenant("Gizmo", text=text))]))
    counting.cancel()

    assert turns >= 8
