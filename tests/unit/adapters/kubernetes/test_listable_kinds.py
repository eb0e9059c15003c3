"""Discovery of all kinds that can be listed: aggregated, and group by group."""

from typing import Any

import pytest

from shared.adapters.kubernetes.listable_kinds import discover_listable
from shared.errors import AbsentKindError, PermanentError, TryLaterError
from shared.ports import ListableKind

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


async def test_kind_in_several_versions_is_found_once_with_the_preferred_one_first():
    core = aggregated("", v1=[resource("nodes", "Node", scope="Cluster")])
    named = aggregated("batch", v1=[resource("jobs", "Job")], v1beta1=[resource("jobs", "Job")])

    kinds, problem = await discover_listable(core, named, absent)

    assert kinds == (
        ListableKind(("v1",), "nodes", "Node", is_namespaced=False),
        ListableKind(("batch/v1", "batch/v1beta1"), "jobs", "Job", is_namespaced=True),
    )
    assert problem == ""
    assert [one.name for one in kinds] == ["nodes", "jobs.batch"]


async def test_resource_without_list_is_left_out():
    core = aggregated("", v1=[resource("bindings", "Binding", verbs=["create"])])
    assert await discover_listable(core, aggregated("batch"), absent) == ((), "")


async def test_stale_group_is_a_problem():
    named = aggregated("metrics.k8s.io", v1=[])
    named["items"][0]["versions"][0]["freshness"] = "Stale"

    _, problem = await discover_listable(aggregated(""), named, absent)

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

    kinds, problem = await discover_listable(*legacy("v1", "v2"), read)

    assert [one.api_versions for one in kinds] == [("v1",), ("example.com/v2", "example.com/v1")]
    assert problem == ""


@pytest.mark.parametrize(("error", "problem"), [(TryLaterError("away"), "failed: away"), (AbsentKindError("gone"), "")])
async def test_group_that_cannot_be_read_is_a_problem_unless_it_is_gone(error, problem):
    async def read(path):
        if path.startswith("/apis"):
            raise error
        return {"resources": []}

    kinds, found = await discover_listable(*legacy("v1"), read)

    assert (kinds, found) == ((), f"discovery of example.com/v1 {problem}" if problem else "")


async def test_other_answer_is_an_error():
    with pytest.raises(PermanentError, match="expected an APIGroupDiscoveryList"):
        await discover_listable({"kind": "Status"}, NO_GROUPS, absent)
