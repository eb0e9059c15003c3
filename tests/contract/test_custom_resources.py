"""CustomResourceDefinitions and their objects."""

import asyncio
import json

import pytest

pytestmark = pytest.mark.anyio

SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


@pytest.fixture
async def widgets(api):
    """The path of a kind that only this test knows; its version v1 has a status subresource, v1alpha1 is not served."""
    group = f"{api.namespace}.example.dev"
    versions = [
        {"name": "v1", "served": True, "storage": True, "schema": SCHEMA, "subresources": {"status": {}}},
        {"name": "v1alpha1", "served": False, "storage": False, "schema": SCHEMA},
    ]
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    answer = await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    })  # fmt: skip
    assert answer.status == 201, answer
    path = api.path("widgets", group=group)
    await api.becomes(path, lambda a: a.status == 200)
    yield path
    await api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}")


def widget(path, **more):
    return {"apiVersion": path.removeprefix("/apis/").split("/namespaces")[0], "kind": "Widget", **more}


def definition_of(path):
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{path.split('/')[2]}"


async def test_definition_is_established_after_creation(api, widgets):
    answer = await api.get(definition_of(widgets))
    conditions = {c["type"]: c["status"] for c in answer.body["status"]["conditions"]}
    assert conditions == {"Established": "True", "NamesAccepted": "True"}
    assert answer.body["status"]["acceptedNames"]["kind"] == "Widget"
    assert answer.body["status"]["storedVersions"] == ["v1"]


async def test_custom_object_is_created_updated_listed_and_deleted(api, widgets):
    body = widget(widgets, metadata={"generateName": "w-"}, spec={"a": 1}, status={"phase": "Done"})
    created = await api.post(widgets, body)
    assert created.status == 201
    assert created.meta["generation"] == 1
    assert "status" not in created.body
    path = f"{widgets}/{created.meta['name']}"
    assert (await api.patch(path, {"spec": {"a": 2}, "status": {"phase": "No"}})).meta["generation"] == 2
    done = await api.patch(path + "/status", {"status": {"phase": "Done"}, "spec": {"a": 9}})
    assert (done.body["spec"], done.body["status"], done.meta["generation"]) == ({"a": 2}, {"phase": "Done"}, 2)
    listed = await api.get(widgets)
    assert listed.body["kind"] == "WidgetList"
    assert listed.body["items"] == [done.body]  # with kind and apiVersion, unlike a built-in kind's
    assert (await api.delete(path, {"preconditions": {"uid": created.meta["uid"]}})).body["status"] == "Success"


async def test_strategic_patch_of_a_custom_object_is_415(api, widgets):
    await api.post(widgets, widget(widgets, metadata={"name": "w"}))
    answer = await api.patch(f"{widgets}/w", {"spec": {}}, "application/strategic-merge-patch+json")
    assert answer.is_error(415, "UnsupportedMediaType")


async def test_custom_kind_is_discovered(api, widgets):
    group = widgets.split("/")[2]
    groups = (await api.get("/apis")).body["groups"]
    assert [g["preferredVersion"]["version"] for g in groups if g["name"] == group] == ["v1"]
    resources = await api.get(f"/apis/{group}/v1")
    assert [(r["name"], r["kind"]) for r in resources.body["resources"]] == [
        ("widgets", "Widget"), ("widgets/status", "Widget"),
    ]  # fmt: skip


async def test_unserved_version_of_a_custom_kind_is_404(api, widgets):
    assert (await api.get(widgets.replace("/v1/", "/v1alpha1/"))).status == 404


async def test_custom_objects_are_deleted_with_their_definition(api, widgets):
    await api.post(widgets, widget(widgets, metadata={"name": "w"}))
    assert (await api.delete(definition_of(widgets))).status == 200
    await api.becomes(widgets, lambda a: a.status == 404)


async def test_watch_of_custom_objects_ends_with_their_definition(api, widgets):
    version = (await api.get(widgets)).meta["resourceVersion"]
    query = {"watch": "1", "timeoutSeconds": "600", "resourceVersion": version}
    async with asyncio.timeout(60), api.session.get(api.server.url + widgets, params=query) as watch:
        await api.post(widgets, widget(widgets, metadata={"name": "w"}))
        await api.delete(definition_of(widgets))
        lines = (await watch.text()).splitlines()

    assert [json.loads(line)["type"] for line in lines] == ["ADDED", "DELETED"]


async def test_definition_with_another_name_than_its_kind_is_rejected(api):
    answer = await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
        "metadata": {"name": "wrong"},
        "spec": {
            "group": "example.dev", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": SCHEMA}],
        },
    })  # fmt: skip
    assert answer.is_error(422, "Invalid")
