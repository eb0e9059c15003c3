"""LIST: selectors, pages of one snapshot, resource versions."""

import base64
import json

import pytest

pytestmark = pytest.mark.anyio

METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


@pytest.fixture
async def letters(api):
    for name in "abcde":
        await api.secret(name, labels={"letter": name, "vowel" if name in "ae" else "consonant": "yes"})
    return api.secrets()


async def test_list_is_sorted_and_has_a_kind_and_a_version(api, letters):
    answer = await api.get(letters)
    assert answer.names == list("abcde")
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("SecretList", "v1")
    assert int(answer.meta["resourceVersion"]) >= int(answer.body["items"][-1]["metadata"]["resourceVersion"])
    assert not {"kind", "apiVersion"} & answer.body["items"][0].keys()  # as the real one has it, for built-in kinds


async def test_list_over_all_namespaces_returns_the_objects_of_each(api, letters):
    answer = await api.get("/api/v1/secrets")
    found = [i["metadata"]["name"] for i in answer.body["items"] if i["metadata"]["namespace"] == api.namespace]
    assert found == list("abcde")


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("letter=a", "a"),
        ("letter==a", "a"),
        ("letter!=a", "bcde"),
        ("other!=a", "abcde"),
        ("letter in (a, b)", "ab"),
        ("letter notin (a,b)", "cde"),
        ("vowel", "ae"),
        ("!vowel", "bcd"),
        ("vowel,letter notin (a),letter!=b", "e"),
        ("letter=", ""),
        ("example.dev/x", ""),
    ],
)
async def test_label_selector_returns_the_matching_objects(api, letters, selector, found):
    assert (await api.get(letters, labelSelector=selector)).names == list(found)


@pytest.mark.parametrize("selector", ["a b", "a in b", "a in (b", "=a", "a=b c"])
async def test_malformed_label_selector_is_400(api, selector):
    assert (await api.get(api.config_maps(), labelSelector=selector)).is_error(400, "BadRequest")


async def test_field_selector_returns_the_matching_objects(api, letters):
    assert (await api.get(letters, fieldSelector="metadata.name=b")).names == ["b"]
    assert (await api.get(letters, fieldSelector="metadata.name!=b")).names == list("acde")
    assert (await api.get(letters, fieldSelector="metadata.name=b,metadata.namespace=no")).names == []
    assert (await api.get("/api/v1/secrets", fieldSelector=f"metadata.namespace={api.namespace}")).names == list(
        "abcde"
    )


@pytest.mark.parametrize("selector", ["spec.x=1", "metadata.uid=1", "nonsense"])
async def test_unknown_field_selector_is_400(api, selector):
    assert (await api.get(api.config_maps(), fieldSelector=selector)).is_error(400, "BadRequest")


async def test_pods_are_found_by_phase(api):
    for name, phase in (("p", "Succeeded"), ("q", "Failed")):
        await api.pod(name)
        await api.patch(api.pods(name) + "/status", {"status": {"phase": phase}})
    assert (await api.get(api.pods(), fieldSelector="status.phase=Failed")).names == ["q"]
    assert (await api.get(api.pods(), fieldSelector="status.phase!=Failed")).names == ["p"]


async def test_pages_of_a_list_show_one_snapshot(api, letters):
    first = await api.get(letters, limit=2)
    await api.delete(api.secrets("c"))
    await api.delete(api.secrets("a"))
    await api.secret("bb")
    await api.patch(api.secrets("d"), {"metadata": {"labels": {"letter": "changed"}}})
    second = await api.get(letters, limit=2, continue_=first.meta["continue"])
    third = await api.get(letters, limit=2, continue_=second.meta["continue"])
    assert [first.names, second.names, third.names] == [["a", "b"], ["c", "d"], ["e"]]
    assert second.body["items"][1]["metadata"]["labels"]["letter"] == "d"
    assert first.meta["resourceVersion"] == second.meta["resourceVersion"] == third.meta["resourceVersion"]
    assert (first.meta["remainingItemCount"], second.meta["remainingItemCount"]) == (3, 1)
    assert not third.meta.get("continue")
    assert (await api.get(letters)).names == ["b", "bb", "d", "e"]


async def test_pages_over_all_namespaces_return_each_object_once(api, letters):
    token, found = "", []
    while True:
        query = {"continue": token} if token else {}
        page = await api.get("/api/v1/secrets", limit=2, **query)
        found += [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in page.body["items"]]
        token = page.meta.get("continue")
        if not token:
            break
    assert [name for namespace, name in found if namespace == api.namespace] == list("abcde")
    assert len(found) == len(set(found))


async def test_page_of_a_selector_has_no_remaining_item_count(api, letters):
    page = await api.get(letters, limit=1, labelSelector="vowel")
    assert page.names == ["a"]
    assert "remainingItemCount" not in page.meta
    assert (await api.get(letters, labelSelector="vowel", limit=5, continue_=page.meta["continue"])).names == ["e"]


async def test_expired_continue_token_is_410_with_a_token_for_the_present(api, letters):
    first = await api.get(letters, limit=2)
    await api.delete(api.secrets("c"))
    api.server.compact()
    expired = await api.get(letters, limit=2, continue_=first.meta["continue"])
    assert expired.is_error(410, "Expired")
    assert (await api.get(letters, limit=5, continue_=expired.meta["continue"])).names == ["d", "e"]


async def test_malformed_continue_token_is_400(api, letters):
    assert (await api.get(letters, limit=2, continue_="nonsense")).is_error(400, "BadRequest")


async def test_continue_token_names_its_snapshot(api, letters):
    token = (await api.get(letters, limit=2)).meta["continue"]
    fields = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert fields["v"] == "meta.k8s.io/v1"
    assert fields["start"].endswith("b\0")


async def test_exact_resource_version_returns_the_past_state(api, letters):
    page = await api.get(letters, limit=2)
    await api.delete(api.secrets("a"))
    version = page.meta["resourceVersion"]
    again = await api.get(letters, resourceVersion=version, resourceVersionMatch="Exact")
    assert (again.names, again.meta["resourceVersion"]) == (list("abcde"), version)
    newer = await api.get(letters, resourceVersion=version, resourceVersionMatch="NotOlderThan")
    assert newer.names == list("bcde")
    api.server.compact()
    expired = await api.get(letters, resourceVersion=version, resourceVersionMatch="Exact")
    assert expired.is_error(410, "Expired")


@pytest.mark.parametrize(
    ("query", "code", "reason"),
    [
        pytest.param({"resourceVersionMatch": "Exact"}, 422, "Invalid", id="match without version"),
        pytest.param({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422, "Invalid", id="exactly any"),
        pytest.param({"resourceVersionMatch": "Nearly", "resourceVersion": "1"}, 422, "Invalid", id="unknown match"),
        pytest.param({"resourceVersion": "x"}, 400, "BadRequest", id="no number"),
        pytest.param({"limit": "x"}, 400, "BadRequest", id="no limit"),
        pytest.param({"resourceVersion": "999999999"}, 504, "Timeout", id="future"),
    ],
)
async def test_invalid_list_options_are_rejected(api, query, code, reason):
    assert (await api.get(api.secrets(), **query)).is_error(code, reason)


async def test_continue_token_with_a_resource_version_is_rejected(api, letters):
    first = await api.get(letters, limit=2)
    answer = await api.get(letters, continue_=first.meta["continue"], resourceVersion=first.meta["resourceVersion"])
    assert answer.is_error(400, "BadRequest")


async def test_limit_of_a_list_from_resource_version_0_is_ignored(api):
    for name in "ab":
        await api.config_map(name)
    version = (await api.get(api.config_maps())).meta["resourceVersion"]
    await api.becomes(api.config_maps(), lambda a: int(a.meta["resourceVersion"]) >= int(version))
    assert {"a", "b"} <= set((await api.get(api.config_maps(), resourceVersion="0", limit=1)).names)


async def test_list_of_metadata_returns_metadata_only(api, letters):
    answer = await api.get(letters, accept=METADATA, limit=1)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert answer.meta["continue"]
    item = answer.body["items"][0]
    assert (item["kind"], item.keys()) == ("PartialObjectMetadata", {"kind", "apiVersion", "metadata"})
    one = await api.get(api.secrets("b"), accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
    assert (one.body["kind"], one.meta["name"]) == ("PartialObjectMetadata", "b")


async def test_unsupported_accept_header_is_406(api):
    answer = await api.get(api.secrets(), accept="application/json;as=Poem;g=meta.k8s.io;v=v1")
    assert answer.is_error(406, "NotAcceptable")
