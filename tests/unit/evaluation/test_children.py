"""The children of an object: which are found, by how many requests, and what stops the search."""

import asyncio
import weakref
from contextlib import aclosing
from dataclasses import replace

import pytest

from shared.core.kinds.rule import Catalogue, ChildKind
from shared.core.values.objects import ref_of
from shared.devserver.apiserver import Resource
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError
from shared.evaluation import owned_lists
from shared.evaluation.children import Children
from tests.builders import JOB, POD, having, kind_rules
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

KINDS = Catalogue(tuple(kind_rules().values()))
JOBSET = kind_rules()["jobsets.jobset.x-k8s.io"]
WORKFLOW = kind_rules()["workflows.argoproj.io"]


def named(name, kind=JOB, *, owners=(), namespace="ci", **fields):
    """An object of a kind with owner references to other objects."""
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        for owner in owners
    ]
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1", **fields}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata | {"ownerReferences": references},
        "status": {"phase": "Succeeded"},
    }


@pytest.fixture
def cluster():
    return FakeCluster()


async def find(cluster, root, rule=JOB, **options):
    """The names of the children, in the order in which they are found."""
    finder = options.pop("finder", None) or Children(cluster, KINDS, **options)
    async with aclosing(finder.find(ref_of(root), rule)) as pages:
        return [snapshot.obj["metadata"]["name"] async for page in pages for snapshot in page.children]


async def test_pods_of_a_job_are_its_children(cluster):
    build, other = cluster.put(named("build")), cluster.put(named("other"))
    cluster.put(named("build-1", POD, owners=[build]))
    cluster.put(named("build-2", POD, owners=[build]))
    cluster.put(named("other-1", POD, owners=[other]))
    cluster.put(named("alone", POD))

    assert await find(cluster, build) == ["build-1", "build-2"]


async def test_children_of_children_are_found_after_their_owners(cluster):
    jobset = cluster.put(named("set", JOBSET))
    replica = cluster.put(named("set-0", owners=[jobset]))
    cluster.put(named("a-pod", POD, owners=[replica]))

    assert await find(cluster, jobset, JOBSET) == ["set-0", "a-pod"]


async def test_child_is_whole_and_as_it_is_now(cluster):
    build = cluster.put(named("build"))
    cluster.put(named("build-1", POD, owners=[build]))
    cluster.on_list = lambda: cluster.write("build-1")  # between the LIST and the read

    async for page in Children(cluster, KINDS).find(ref_of(build), JOB):
        (child,) = page.children
        assert page.rule.name == "pods"
        assert child.obj == (await cluster.get(POD, ref_of(child.obj))).obj
        assert child.obj["metadata"]["labels"] == {"touched": "yes"}


async def test_owner_reference_needs_the_uid_and_not_the_name(cluster):
    build = cluster.put(named("build"))
    cluster.put(named("of-a-former-job", POD, owners=[having(build, "metadata.uid", "uid-former")]))

    assert await find(cluster, build) == []


async def test_object_of_another_namespace_is_no_child(cluster):
    build = cluster.put(named("build"))
    cluster.put(named("elsewhere", POD, owners=[build], namespace="other"))

    assert await find(cluster, build) == []


async def test_object_with_two_owners_is_found_once(cluster):
    jobset = cluster.put(named("set", JOBSET))
    replica = cluster.put(named("set-0", owners=[jobset]))
    cluster.put(named("pod", POD, owners=[replica, jobset, replica]))

    assert await find(cluster, jobset, JOBSET) == ["set-0", "pod"]


async def test_objects_that_own_each_other_are_found_once(cluster):
    """Kubernetes does not reject owner references in a circle, and Argo's Workflows can own Workflows."""
    root = cluster.put(named("root", WORKFLOW))
    second = named("b", WORKFLOW, owners=[root])
    first = named("a", WORKFLOW, owners=[second])  # listed before its owner
    cluster.put(first)
    cluster.put(named("b", WORKFLOW, owners=[root, first]))
    cluster.put(named("root", WORKFLOW, owners=[first]))

    assert sorted(await find(cluster, root, WORKFLOW)) == ["a", "b"]


class OddCluster(FakeCluster):
    """Answers with one more Pod."""

    references: object = None

    async def list_page(self, *args, **options):
        page = await super().list_page(*args, **options)
        return replace(
            page, items=[having(named("odd", POD), "metadata.ownerReferences", self.references), *page.items]
        )


@pytest.mark.parametrize("owner", [None, "build", [None], ["build"], [{"uid": None}], [{"uid": ["uid-build"]}], [{}]])
async def test_owner_reference_of_any_shape_is_no_error(owner):
    cluster = OddCluster()
    cluster.references = owner
    build = cluster.put(named("build"))
    cluster.put(named("build-1", POD, owners=[build]))

    assert await find(cluster, build) == ["build-1"]


async def test_kind_that_is_not_served_is_passed_over(cluster):
    jobset = cluster.put(named("set", JOBSET))
    cluster.put(named("pod", POD, owners=[jobset]))
    cluster.serve_only(JOBSET, POD)

    assert await find(cluster, jobset, JOBSET) == ["pod"]


def serve_jobs_in(cluster, version, **scope):
    """Serve Jobs in one version only."""
    cluster.serve_only(JOBSET, POD)
    cluster.store.resources.add(Resource("batch", version, "jobs", "Job", **scope))


def newer(job):
    return job | {"apiVersion": "batch/v2"}


async def test_kind_that_is_served_only_in_an_unknown_version_is_listed_in_that_version(cluster):
    jobset = cluster.put(named("set", JOBSET))
    serve_jobs_in(cluster, "v2")
    replica = cluster.put(newer(named("set-0", owners=[jobset])))
    cluster.put(named("pod", POD, owners=[replica]))

    pages = [page async for page in Children(cluster, KINDS).find(ref_of(jobset), JOBSET)]

    assert [one.obj["metadata"]["name"] for page in pages for one in page.children] == ["set-0", "pod"]
    assert pages[0].rule.api_version == pages[0].children[0].obj["apiVersion"] == "batch/v2"
    assert pages[0].rule.never_finishes


async def test_kind_that_moves_to_an_unknown_version_is_still_found(cluster):
    """Discovery has the old version in its cache."""
    jobset = cluster.put(named("set", JOBSET))
    assert await find(cluster, jobset, JOBSET) == []
    cluster.clock.advance(10)
    serve_jobs_in(cluster, "v2")
    cluster.put(newer(named("set-0", owners=[jobset])))

    assert await find(cluster, jobset, JOBSET) == ["set-0"]


async def test_kind_that_is_removed_after_discovery_is_passed_over(cluster):
    jobset = cluster.put(named("set", JOBSET))
    cluster.put(named("pod", POD, owners=[jobset]))
    assert await find(cluster, jobset, JOBSET) == ["pod"]
    cluster.clock.advance(10)
    cluster.serve_only(JOBSET, POD)

    assert await find(cluster, jobset, JOBSET) == ["pod"]


class HiddenCluster(FakeCluster):
    """Discovery of the group of Jobs is forbidden."""

    async def _ask(self, path):
        if path == "/apis/batch":
            raise ForbiddenError("may not")
        return await super()._ask(path)


async def test_kind_that_is_not_found_and_that_discovery_may_not_be_asked_for_is_an_error():
    """It may be served in another version, so the children are unknown."""
    cluster = HiddenCluster()
    jobset = cluster.put(named("set", JOBSET))
    cluster.serve_only(JOBSET, POD)

    with pytest.raises(PermanentError, match=r"children of JobSet ci/set.*jobs\.batch.*batch/v1.*discovery") as caught:
        await find(cluster, jobset, JOBSET)
    assert not isinstance(caught.value, AbsentKindError)


async def test_kind_that_disappears_before_its_children_are_read_is_tried_later(cluster):
    build = cluster.put(named("build"))
    cluster.put(named("build-1", POD, owners=[build]))
    cluster.fail("get", AbsentKindError("this cluster does not serve pods"), on="build-1")

    with pytest.raises(TryLaterError, match="children of Job ci/build"):
        await find(cluster, build)


async def test_cluster_scoped_kind_has_no_children_of_an_object_in_a_namespace(cluster):
    jobset = cluster.put(named("set", JOBSET))
    serve_jobs_in(cluster, "v1", namespaced=False)
    cluster.put(named("pod", POD, owners=[jobset]))

    assert await find(cluster, jobset, JOBSET) == ["pod"]


async def test_kind_without_a_rule_of_its_own_is_listed(cluster):
    config_maps = ChildKind(api_versions=("v1",), kind="ConfigMap", plural="configmaps")
    build = cluster.put(named("build"))
    cluster.put(named("settings", config_maps_rule(), owners=[build]))

    assert await find(cluster, build, JOB.model_copy(update={"children": (config_maps,)})) == ["settings"]


def config_maps_rule():
    return POD.model_copy(update={"kind": "ConfigMap", "plural": "configmaps"})


async def test_missing_right_is_named(cluster):
    build = cluster.put(named("build"))
    cluster.fail("list-metadata", ForbiddenError("pods is forbidden"), on="pods")

    with pytest.raises(ForbiddenError, match=r"children of Job ci/build.*pods is forbidden.*right to list pods"):
        await find(cluster, build)


async def test_object_with_too_many_children_is_refused(cluster):
    build = cluster.put(named("build"))
    for number in range(4):
        cluster.put(named(f"build-{number}", POD, owners=[build]))

    assert len(await find(cluster, build, children_max=4)) == 4
    with pytest.raises(PermanentError, match=r"Job ci/build has more than 3 children.*children: false"):
        await find(cluster, build, children_max=3)


async def test_forged_children_of_another_object_do_not_count(cluster):
    """A user who can create Pods can name any owner: that makes this owner's archive larger, and no other's."""
    build, victim = cluster.put(named("build")), cluster.put(named("victim"))
    for number in range(10):
        cluster.put(named(f"forged-{number}", POD, owners=[victim]))
    cluster.put(named("build-1", POD, owners=[build]))

    assert await find(cluster, build, children_max=3) == ["build-1"]


async def test_lists_that_take_too_much_memory_are_refused(cluster, monkeypatch):
    monkeypatch.setattr(owned_lists, "SHORT_BYTES_MAX", 2_000)
    monkeypatch.setattr(owned_lists, "LONG_BYTES_MAX", 4_000)
    build = cluster.put(named("build"))
    cluster.put(named("crowd", POD, owners=[build, *map(named, "abcdefghij")]))
    for number in range(10):
        cluster.put(named(f"pod-{number}", POD, owners=[build]))

    with pytest.raises(
        PermanentError, match=r"pods in namespace ci: expected at most 4000 .*Pod ci/crowd has 11 owner"
    ):
        await find(cluster, build)


class CrowdedCluster(FakeCluster):
    """Answers with 36 more Pods of 14,000 owner references each: some 1 MB, which etcd takes."""

    owner = ""
    forged = tuple({"uid": f"forged-{number}"} for number in range(13_999))

    async def list_page(self, *args, **options):
        page = await super().list_page(*args, **options)
        owners = [*self.forged, {"uid": self.owner}]
        crowd = [having(named(f"crowd-{number}", POD), "metadata.ownerReferences", owners) for number in range(36)]
        return replace(page, items=[*crowd, *page.items])


async def test_objects_with_many_owner_references_do_not_stop_other_owners():
    cluster = CrowdedCluster()
    build = cluster.put(named("build"))
    cluster.put(named("build-1", POD, owners=[build]))

    assert await find(cluster, build) == ["build-1"]


async def test_object_with_many_owner_references_is_a_child_of_each_owner():
    cluster = CrowdedCluster()
    cluster.owner = cluster.put(named("build"))["metadata"]["uid"]
    finder, build = Children(cluster, KINDS), named("build")

    (found,) = await finder._find_names(ref_of(build), JOB.children, "")

    assert list(found.names) == [f"uid-crowd-{number}" for number in range(36)]


async def test_object_whose_owners_cannot_be_read_is_reported(cluster):
    build = cluster.put(named("build"))
    cluster.put(named("deep", POD, owners=[build]))
    cluster.unreadable["deep"] = "nested too deeply"

    pages = [page async for page in Children(cluster, KINDS).find(ref_of(build), JOB)]

    assert [one.ref.name for page in pages for one in page.unreadable] == ["deep"]


async def test_child_that_is_gone_or_replaced_meanwhile_is_left_out(cluster):
    build = cluster.put(named("build"))
    for name in ("gone", "kept", "replaced"):
        cluster.put(named(name, POD, owners=[build]))

    def before_get(name):
        if name == "gone":
            cluster.remove("gone")
        if name == "replaced":
            cluster.put(named("replaced", POD) | {"metadata": named("replaced", POD)["metadata"] | {"uid": "new"}})

    cluster.before_get = before_get

    assert await find(cluster, build) == ["kept"]


# Requests


async def test_few_children_of_many_pods_are_read_one_by_one(cluster):
    build = cluster.put(named("build"))
    for number in range(80):
        cluster.put(named(f"pod-{number:02}", POD, owners=[build] if number < 15 else []))

    assert len(await find(cluster, build)) == 15
    assert (cluster.counted()["list-metadata"], cluster.counted()["list"], cluster.counted()["get"]) == (1, 0, 15)


async def test_many_children_are_listed_by_page():
    cluster = FakeCluster(page_size=10)
    build = cluster.put(named("build"))
    for number in range(35):
        cluster.put(named(f"pod-{number:02}", POD, owners=[build] if number < 31 else []))

    pages = [len(page.children) async for page in Children(cluster, KINDS).find(ref_of(build), JOB)]

    assert pages == [10, 10, 10, 1]
    assert (cluster.counted()["list-metadata"], cluster.counted()["list"], cluster.counted()["get"]) == (4, 4, 0)


async def test_only_one_object_at_a_time_has_its_children_listed_in_full():
    """Each LIST in full holds a page in memory, while its caller stores the children."""
    cluster = FakeCluster(page_size=10)
    builds = [cluster.put(named(f"build-{number}")) for number in range(2)]
    for number in range(40):
        cluster.put(named(f"pod-{number:02}", POD, owners=[builds[number % 2]]))
    finder = Children(cluster, KINDS)

    async with aclosing(finder.find(ref_of(builds[0]), JOB)) as pages:
        await anext(pages)
        assert len(await find(cluster, builds[1], finder=finder)) == 20
    assert (cluster.counted()["list"], cluster.counted()["get"]) == (1, 20)

    assert len(await find(cluster, builds[0], finder=finder)) == 20
    assert (cluster.counted()["list"], cluster.counted()["get"]) == (5, 20)


async def test_reference_without_a_uid_owns_nothing(cluster):
    cluster.put(named("build-1", POD, owners=[having(named("build"), "metadata.uid", "")]))

    assert await find(cluster, having(named("build"), "metadata.uid", "")) == []


class SlowCluster(FakeCluster):
    """LISTs take a while."""

    async def list_page(self, *args, **options):
        try:
            return await super().list_page(*args, **options)
        finally:
            await asyncio.sleep(0.01)


class GatedCluster(FakeCluster):
    """LISTs begin, and are answered after `opened`."""

    def __init__(self):
        super().__init__()
        self.opened = asyncio.Event()

    async def list_page(self, *args, **options):
        try:
            return await super().list_page(*args, **options)
        finally:
            await self.opened.wait()


async def together(cluster, finder, *roots):
    """Find the children of all roots, which all have asked before the first LIST is answered."""
    tasks = [asyncio.ensure_future(find(cluster, root, finder=finder)) for root in roots]
    for _ in range(1_000):
        await asyncio.sleep(0)
    cluster.opened.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_burst_in_one_namespace_shares_two_lists():
    cluster = GatedCluster()
    builds = [cluster.put(named(f"build-{number}")) for number in range(50)]
    for build in builds:
        cluster.put(named(f"{build['metadata']['name']}-pod", POD, owners=[build]))
    finder = Children(cluster, KINDS)

    found = await together(cluster, finder, *builds)

    assert [len(names) for names in found] == [1] * 50
    assert cluster.counted()["list-metadata"] <= 2
    assert cluster.counted()["get"] == 50


async def test_namespaces_do_not_share_a_list():
    cluster = GatedCluster()
    builds = [cluster.put(named("build", namespace=name, uid=f"uid-{name}")) for name in ("a", "b")]
    for build in builds:
        namespace = build["metadata"]["namespace"]
        cluster.put(named(f"pod-{namespace}", POD, owners=[build], namespace=namespace))
    finder = Children(cluster, KINDS)

    assert await together(cluster, finder, *builds) == [["pod-a"], ["pod-b"]]


async def test_list_that_began_before_the_question_does_not_answer_it():
    """A Pod that is created between the LIST and the question is found."""
    cluster = SlowCluster()
    first, second = cluster.put(named("first")), cluster.put(named("second"))
    finder = Children(cluster, KINDS)
    begun = asyncio.Event()
    cluster.on_list = begun.set
    asking = asyncio.ensure_future(find(cluster, first, finder=finder))
    await begun.wait()
    cluster.put(named("second-1", POD, owners=[second]))

    assert await find(cluster, second, finder=finder) == ["second-1"]
    assert await asking == []


async def test_lists_of_many_namespaces_run_some_at_a_time():
    running, most = 0, 0

    class Counting(SlowCluster):
        async def list_page(self, *args, **options):
            nonlocal running, most
            running, most = running + 1, max(most, running + 1)
            try:
                return await super().list_page(*args, **options)
            finally:
                running -= 1

    cluster = Counting()
    builds = [cluster.put(named("build", namespace=f"n{number}", uid=f"uid-{number}")) for number in range(12)]
    finder = Children(cluster, KINDS)

    await asyncio.gather(*(find(cluster, build, finder=finder) for build in builds))

    assert 1 < most <= owned_lists.LISTS_AT_ONCE


def count_live(monkeypatch):
    """All indexes that are made, for as long as they live."""
    live: weakref.WeakSet[owned_lists.Owned] = weakref.WeakSet()

    class Counted(owned_lists.Owned):
        def __init__(self):
            super().__init__()
            live.add(self)

    monkeypatch.setattr(owned_lists, "Owned", Counted)
    return live


async def test_lists_are_dropped_before_the_children_are_read(cluster, monkeypatch):
    """Storing the children takes minutes; objects that finish in the meantime have LISTs of their own."""
    live = count_live(monkeypatch)
    build = cluster.put(named("build"))
    cluster.put(named("build-1", POD, owners=[build]))

    async with aclosing(Children(cluster, KINDS).find(ref_of(build), JOB)) as pages:
        await anext(pages)
        assert not live


async def test_lists_are_dropped_after_an_error(cluster, monkeypatch):
    live = count_live(monkeypatch)
    build = cluster.put(named("build"))
    cluster.put(named("build-1", POD, owners=[build]))

    with pytest.raises(PermanentError) as caught:
        await find(cluster, build, children_max=0)
    assert caught.value
    assert not live


async def test_one_namespace_at_a_time_has_long_lists(monkeypatch):
    """The others wait, and hold no list."""
    monkeypatch.setattr(owned_lists, "SHORT_BYTES_MAX", 1_500)
    live, most = count_live(monkeypatch), 0

    class Watching(SlowCluster):
        async def list_page(self, *args, **options):
            nonlocal most
            page = await super().list_page(*args, **options)
            most = max(most, sum(owned.size > owned_lists.SHORT_BYTES_MAX for owned in live))
            return page

    cluster = Watching(page_size=3)
    builds = [cluster.put(named("build", namespace=f"n{number}", uid=f"uid-{number}")) for number in range(6)]
    for number, build in enumerate(builds):
        for pod in range(9):
            name = f"pod-{number}-{pod}"
            cluster.put(named(name, POD, owners=[build], namespace=build["metadata"]["namespace"]))
    finder = Children(cluster, KINDS)

    found = await asyncio.gather(*(find(cluster, build, finder=finder) for build in builds))

    assert [len(names) for names in found] == [9] * 6
    assert most == 1


async def test_namespace_with_long_lists_does_not_delay_others(monkeypatch):
    monkeypatch.setattr(owned_lists, "LISTS_AT_ONCE", 1)

    class Large(GatedCluster):
        async def list_page(self, rule, *, namespace="", continue_token="", **options):
            page = await FakeCluster.list_page(
                self, rule, namespace=namespace, continue_token=continue_token, **options
            )
            if continue_token:
                await self.opened.wait()
            return replace(page, is_large=namespace == "large")

    cluster = Large()
    cluster.page_size = 1
    large, small = (cluster.put(named("build", namespace=name, uid=f"uid-{name}")) for name in ("large", "small"))
    for pod in ("a", "b"):
        cluster.put(named(pod, POD, owners=[large], namespace="large"))
    finder = Children(cluster, KINDS)
    asking = asyncio.ensure_future(find(cluster, large, finder=finder))
    while not finder._lists._long.locked():
        await asyncio.sleep(0)

    assert await find(cluster, small, finder=finder) == []
    cluster.opened.set()
    assert await asking == ["a", "b"]


async def test_right_that_is_missing_for_one_kind_does_not_stop_owners_of_another():
    cluster = GatedCluster()
    jobset, build = cluster.put(named("set", JOBSET)), cluster.put(named("build"))
    cluster.put(named("build-1", POD, owners=[build]))
    cluster.fail("list-metadata", ForbiddenError("jobs is forbidden"), on="jobs")
    finder = Children(cluster, KINDS)
    asking = asyncio.ensure_future(find(cluster, jobset, JOBSET, finder=finder))

    assert await together(cluster, finder, build) == [["build-1"]]
    with pytest.raises(ForbiddenError, match="jobs is forbidden"):
        await asking


async def test_list_that_fails_fails_for_all_who_wait_for_it():
    cluster = GatedCluster()
    builds = [cluster.put(named(f"build-{number}")) for number in range(20)]
    cluster.fail("list-metadata", TryLaterError("the API server is away"))

    found = await together(cluster, Children(cluster, KINDS), *builds)

    assert {type(one) for one in found} == {TryLaterError}
    assert cluster.counted()["list-metadata"] <= 2


async def test_caller_that_is_cancelled_does_not_stop_the_others():
    cluster = SlowCluster()
    build = cluster.put(named("build"))
    cluster.put(named("build-1", POD, owners=[build]))
    finder = Children(cluster, KINDS)
    cancelled, waiting = (asyncio.ensure_future(find(cluster, build, finder=finder)) for _ in range(2))
    for _ in range(10):
        await asyncio.sleep(0)

    cancelled.cancel()

    assert await waiting == ["build-1"]
    await asyncio.sleep(0)
    assert not finder._lists._queues


async def test_nothing_is_remembered_after_the_last_caller(cluster):
    build = cluster.put(named("build"))
    finder = Children(cluster, KINDS)
    await find(cluster, build, finder=finder)

    assert not finder._lists._queues


async def test_kind_without_children_makes_no_request(cluster):
    assert await find(cluster, cluster.put(named("pod", POD)), POD) == []
    assert not cluster.calls
