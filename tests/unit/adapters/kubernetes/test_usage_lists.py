"""Discovery of all kinds that can be listed: aggregated, and group by group."""

from typing import Any

import pytest

from shared.adapters.kubernetes.usage_lists import discover_listable
from shared.errors import AbsentKindError, PermanentError, TryLaterError
from shared.ports import ListableKind
from tests.builders import NOW

pytestmark = pytest.mark.anyio

READ = ["get", "list"]
NO_GROUPS = {"kind": "APIGroupList", "groups": []}


def resource(plural, kind, *, verbs=READ, scope="Namespaced"):
    return {"resource": plural, "responseKind": {"kind": kind}, "scope": scope, "verbs": verbs}


def aggregated(group, **versions):
    listed = [{"version": name, "resources": found, "freshness": "Current"} for name, found in versions.items()]
    return {"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": group}, "versions": listed}]}


async def absent(path):
    raise AssertionError(path)


async def discover(core, named, read=absent):
    found = await discover_listable(core, named, read, NOW)
    return found.kinds, found.problem


async def test_kind_in_several_versions_is_found_once_with_the_preferred_one_first():
    core = aggregated("", v1=[resource("nodes", "Node", scope="Cluster")])
    named = aggregated("batch", v1=[resource("jobs", "Job")], v1beta1=[resource("jobs", "Job")])

    kinds, problem = await discover(core, named)

    assert kinds == (
        ListableKind(("v1",), "nodes", "Node", is_namespaced=False),
        ListableKind(("batch/v1", "batch/v1beta1"), "jobs", "Job", is_namespaced=True),
    )
    assert problem == ""
    assert [one.name for one in kinds] == ["nodes", "jobs.batch"]


async def test_resource_without_list_is_left_out():
    core = aggregated("", v1=[resource("bindings", "Binding", verbs=["create"])])
    assert await discover(core, aggregated("batch")) == ((), "")


async def test_stale_group_is_a_problem():
    named = aggregated("metrics.k8s.io", v1=[])
    named["items"][0]["versions"][0]["freshness"] = "Stale"

    _, problem = await discover(aggregated(""), named)

    assert problem == "discovery of metrics.k8s.io/v1 is stale: its API server did not answer"


def legacy(*names: str) -> tuple[Any, Any]:
    versions = [{"groupVersion": f"example.com/{name}"} for name in names]
    group = {"versions": versions, "preferredVersion": {"groupVersion": f"example.com/{names[-1]}"}}
    return {"kind": "APIVersions", "versions": ["v1"]}, {"kind": "APIGroupList", "groups": [group]}


async def test_older_api_server_is_read_group_by_group():
    documents = {
        "/api/v1": [
            {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": READ},
            {"name": "pods/status", "kind": "Pod", "namespaced": True, "verbs": READ},
        ],
        "/apis/example.com/v1": [{"name": "gizmos", "kind": "Gizmo", "namespaced": False, "verbs": READ}],
        "/apis/example.com/v2": [{"name": "gizmos", "kind": "Gizmo", "namespaced": False, "verbs": READ}],
    }

    async def read(path):
        return {"kind": "APIResourceList", "resources": documents[path]}

    kinds, problem = await discover(*legacy("v1", "v2"), read)

    assert [one.api_versions for one in kinds] == [("v1",), ("example.com/v2", "example.com/v1")]
    assert problem == ""


async def test_kind_that_can_be_read_and_not_listed_is_unlistable():
    named = aggregated("image.example.com", v1=[resource("layers", "Layer", verbs=["get"])])
    core = aggregated("", v1=[resource("bindings", "Binding", verbs=["create"])])

    found = await discover_listable(core, named, absent, NOW)

    assert (found.kinds, found.problem) == ((), "")
    assert found.unlistable == (ListableKind(("image.example.com/v1",), "layers", "Layer", is_namespaced=True),)


async def test_kind_that_can_be_listed_in_one_of_its_versions_is_listable():
    versions = {"v1": [resource("gizmos", "Gizmo", verbs=["get"])], "v1beta1": [resource("gizmos", "Gizmo")]}

    found = await discover_listable(aggregated(""), aggregated("example.com", **versions), absent, NOW)

    assert [one.api_versions for one in found.kinds] == [("example.com/v1beta1",)]
    assert found.unlistable == ()


async def test_older_api_server_tells_which_kinds_are_unlistable_too():
    documents = {
        "/api/v1": [{"name": "tokenreviews", "kind": "TokenReview", "namespaced": False, "verbs": ["create"]}],
        "/apis/example.com/v1": [
            {"name": "layers", "kind": "Layer", "namespaced": True, "verbs": ["get"]},
            {"name": "layers/blob", "kind": "Blob", "namespaced": True, "verbs": ["get"]},
        ],
    }

    async def read(path):
        return {"kind": "APIResourceList", "resources": documents[path]}

    found = await discover_listable(*legacy("v1"), read, NOW)

    assert [one.name for one in found.unlistable] == ["layers.example.com"]


@pytest.mark.parametrize("error", [TryLaterError("away"), AbsentKindError("gone")])
async def test_version_that_is_named_and_cannot_be_read_is_a_problem(error):
    async def read(path):
        if path.startswith("/apis"):
            raise error
        return {"resources": []}

    kinds, found = await discover(*legacy("v1"), read)

    assert (kinds, found) == ((), f"discovery of example.com/v1 failed: {error}")


async def test_other_answer_is_an_error():
    with pytest.raises(PermanentError, match="expected an APIGroupDiscoveryList"):
        await discover({"kind": "Status"}, NO_GROUPS)
