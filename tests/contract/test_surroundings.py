"""Everything around the objects: dates, discovery, tables, unknown paths."""

from datetime import timedelta
from email.utils import parsedate_to_datetime

import pytest

from shared.adapters.clock import SystemClock

pytestmark = pytest.mark.anyio

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_every_response_has_the_date_of_the_server(api):
    for path in (api.config_maps(), api.config_maps("missing"), "/version", "/nowhere"):
        date = parsedate_to_datetime((await api.get(path)).headers["Date"])
        assert date.utcoffset() in (timedelta(0), None)
        assert abs((SystemClock().now() - date).total_seconds()) < 10


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_server_is_healthy(api, path):
    answer = await api.get(path)
    assert (answer.status, answer.body) == (200, "ok")


async def test_server_has_a_version(api):
    assert (await api.get("/version")).body["gitVersion"].startswith("v1.")


async def test_unknown_path_is_404(api):
    assert (await api.get("/nowhere")).status == 404
    assert (await api.get("/apis/nowhere.example.dev/v1/things")).status == 404
    for path in ("/apis/batch/v1/things", api.path("things", group="batch")):
        assert (await api.get(path)).is_error(404, "NotFound")


async def test_unknown_verb_is_405(api):
    assert (await api.post(api.config_maps("a"), {})).is_error(405, "MethodNotAllowed")


async def test_groups_and_resources_are_discovered(api):
    assert (await api.get("/api")).body["versions"] == ["v1"]
    assert {"batch", "coordination.k8s.io"} <= {g["name"] for g in (await api.get("/apis")).body["groups"]}
    assert (await api.get("/apis/batch")).body["preferredVersion"] == {"groupVersion": "batch/v1", "version": "v1"}
    resources = {r["name"]: r for r in (await api.get("/apis/batch/v1")).body["resources"]}
    assert {"jobs", "jobs/status", "cronjobs", "cronjobs/status"} <= resources.keys()
    assert resources["jobs"]["kind"] == "Job"
    assert resources["jobs"]["namespaced"] is True
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(resources["jobs"]["verbs"])


async def test_groups_and_resources_are_discovered_in_one_request_each(api):
    core, named = await api.get("/api", accept=AGGREGATED), await api.get("/apis", accept=AGGREGATED)
    assert core.headers["Content-Type"] == named.headers["Content-Type"] == AGGREGATED
    assert named.body["kind"] == "APIGroupDiscoveryList"
    groups = {item["metadata"]["name"]: item for item in named.body["items"]}
    jobs = next(r for r in groups["batch"]["versions"][0]["resources"] if r["resource"] == "jobs")
    assert (jobs["responseKind"]["kind"], jobs["scope"]) == ("Job", "Namespaced")
    assert [s["subresource"] for s in jobs["subresources"]] == ["status"]


async def test_list_for_kubectl_is_a_table(api):
    await api.job("a")
    answer = await api.get(api.jobs(), accept=TABLE)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [c["name"] for c in answer.body["columnDefinitions"] if not c["priority"]]
    assert columns == ["Name", "Status", "Completions", "Duration", "Age"]
    row = answer.body["rows"][0]
    assert row["cells"][:3] == ["a", "Running", "0/1"]
    assert (row["object"]["kind"], row["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "a")


async def test_administrator_is_allowed_every_verb(api):
    body = {"spec": {"resourceAttributes": {"verb": "delete", "group": "batch", "resource": "jobs"}}}
    answer = await api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert (answer.status, answer.body["status"]["allowed"]) == (201, True)


async def test_events_are_found_by_their_involved_object(api):
    for name in "ab":
        about = {"kind": "Job", "name": name, "namespace": api.namespace}
        body = {"metadata": {"name": f"e-{name}"}, "involvedObject": about, "reason": "Kept", "type": "Warning"}
        assert (await api.post(api.path("events"), body)).status == 201
    selector = "involvedObject.name=a,reason=Kept,type=Warning"
    assert (await api.get(api.path("events"), fieldSelector=selector)).names == ["e-a"]


async def test_lease_is_updated_only_with_its_resource_version(api):
    path = api.path("leases", group="coordination.k8s.io")
    lease = await api.post(path, {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a"}})
    mine = await api.put(f"{path}/leader", lease.body | {"spec": {"holderIdentity": "b"}})
    assert mine.status == 200
    assert (await api.put(f"{path}/leader", lease.body | {"spec": {"holderIdentity": "c"}})).is_error(409, "Conflict")
