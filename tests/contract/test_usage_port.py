"""The methods of `shared.ports.cluster.UsageCluster`, and a pass over all carriers."""

import asyncio
import time
from base64 import b64encode

import pytest

from shared.adapters.kubernetes.bodies import COPIES
from shared.core.references.reference import TargetKind, names_of
from shared.core.usage.passes import Observation
from shared.core.values.objects import ref_of
from shared.errors import AbsentKindError, PermanentError
from shared.evaluation.usage_reader import UsageReader
from shared.ports import ListableKind
from tests.references import shipped_carriers
from tests.store_cluster import StoreCluster

pytestmark = pytest.mark.anyio

JOBS = ListableKind(("batch/v1",), "jobs", "Job", is_namespaced=True)
SECRETS = ListableKind(("v1",), "secrets", "Secret", is_namespaced=True)
SECRET, CONFIG_MAP = TargetKind.SECRET, TargetKind.CONFIG_MAP


def pages_of_two(cluster):
    if isinstance(cluster, StoreCluster):
        cluster.page_size = 2
        return {}
    return {"limit": 2}


async def kinds_of(cluster):
    return {one.name: one for one in (await cluster.list_kinds()).kinds}


async def with_volume(api, name, secret):
    """A Job whose Pods mount a Secret."""
    volumes = [{"name": "v", "secret": {"secretName": secret}}]
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}], "volumes": volumes}
    job = {"managedBy": "example.com/contract", "template": {"spec": spec}}  # the Job controller would make a Pod
    answer = await api.post(api.jobs(), {"metadata": {"name": name}, "spec": job})
    assert answer.status == 201, answer


async def problem_about(cluster, group, *, wanted):
    """The problem of discovery, as soon as it names a group, or no longer does."""
    deadline = time.monotonic() + 30
    while (group in (problem := (await cluster.list_kinds()).problem)) != wanted:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    return problem


# Discovery


async def test_each_listable_kind_is_found_once(cluster):
    found = await cluster.list_kinds()

    assert (found.problem, found.unlistable) == ("", ())
    names = [one.name for one in found.kinds]
    assert len(names) == len(set(names))
    assert {"pods", "secrets", "configmaps", "jobs.batch", "cronjobs.batch"} <= {*names}
    by_name = {one.name: one for one in found.kinds}
    assert by_name["jobs.batch"] == JOBS
    assert by_name["namespaces"].is_namespaced is False
    assert not any("/" in one.plural or one.kind == "SelfSubjectAccessReview" for one in found.kinds)


async def test_custom_resource_is_found_with_all_its_versions(cluster, crds):
    await crds.install("Gizmo", "gizmos", "v1beta1", "v1")

    (gizmo,) = [one for one in (await cluster.list_kinds()).kinds if one.plural == "gizmos"]

    assert gizmo == ListableKind((f"{crds.group}/v1", f"{crds.group}/v1beta1"), "gizmos", "Gizmo", is_namespaced=True)
    await crds.remove("gizmos")


@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_aggregated_api_server_that_does_not_answer_is_a_problem(api, cluster):
    group = f"{api.namespace}.example.com"
    spec = {"group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
    spec |= {"insecureSkipTLSVerify": True, "service": {"name": "none", "namespace": api.namespace}}
    services = "/apis/apiregistration.k8s.io/v1/apiservices"
    await api.post(services, {"metadata": {"name": f"v1.{group}"}, "spec": spec})

    problem = await problem_about(cluster, group, wanted=True)
    await api.delete(f"{services}/v1.{group}")
    await problem_about(cluster, group, wanted=False)

    assert "did not answer" in problem


# LISTs of any kind


async def test_pages_of_whole_objects_show_one_state(api, cluster):
    for name in "abc":
        await api.job(name)
    limit = pages_of_two(cluster)

    first = await cluster.list_objects(JOBS, namespace=api.namespace, **limit)
    await api.job("bb")
    last = await cluster.list_objects(JOBS, namespace=api.namespace, continue_token=first.continue_token, **limit)

    assert [one["metadata"]["name"] for page in (first, last) for one in page.items] == ["a", "b", "c"]
    assert (first.resource_version, last.continue_token) == (last.resource_version, "")
    assert {(one["apiVersion"], one["kind"]) for one in first.items} == {("batch/v1", "Job")}
    assert first.items[0]["spec"]


async def test_kind_that_is_gone_cannot_be_listed(cluster):
    absent = ListableKind(("example.dev/v1",), "gizmos", "Gizmo", is_namespaced=True)
    with pytest.raises(AbsentKindError):
        await cluster.list_objects(absent)


@pytest.mark.parametrize("plural", ["secrets", "configmaps"])
async def test_whole_objects_with_data_are_refused(cluster, plural):
    with pytest.raises(PermanentError, match="never read"):
        await cluster.list_objects(ListableKind(("v1",), plural, "", is_namespaced=True))


# Secrets and ConfigMaps


async def test_secret_is_listed_with_its_type_and_the_number_of_its_keys(api, cluster):
    data = {one: b64encode(b"hidden").decode() for one in ("tls.crt", "tls.key")}
    await api.post(api.secrets(), {"metadata": {"name": "tls"}, "type": "kubernetes.io/tls", "data": data})
    await api.post(api.secrets(), {"metadata": {"name": "plain"}})

    page = await cluster.list_targets(SECRET, namespace=api.namespace)

    plain, tls = page.targets
    assert (ref_of(plain.obj).name, plain.obj["type"], plain.keys) == ("plain", "Opaque", 0)
    assert (ref_of(tls.obj).name, tls.obj["type"], tls.keys) == ("tls", "kubernetes.io/tls", 2)
    assert tls.obj.keys() == {"apiVersion", "kind", "metadata", "type"}
    assert (tls.obj["apiVersion"], tls.obj["kind"]) == ("v1", "Secret")
    assert tls.obj["metadata"]["resourceVersion"]
    assert tls.read_at == page.read_at
    assert tls.obj == (await cluster.get_target(SECRET, api.namespace, "tls")).obj


async def test_config_map_is_read_without_its_data(api, cluster):
    body = {"metadata": {"name": "web"}, "data": {"a": "hidden"}, "binaryData": {"b": b64encode(b"hidden").decode()}}
    created = (await api.post(api.config_maps(), body)).body

    target = await cluster.get_target(CONFIG_MAP, api.namespace, "web")

    assert ref_of(target.obj) == ref_of(created)
    assert target.obj.keys() == {"apiVersion", "kind", "metadata"}
    assert target.keys == 2
    assert await cluster.get_target(CONFIG_MAP, api.namespace, "missing") is None


async def test_annotation_in_which_kubectl_repeats_the_data_is_left_out(api, cluster):
    await api.secret("applied", annotations={COPIES[0]: '{"data":{"a":"hidden"}}', "note": "kept"})

    target = await cluster.get_target(SECRET, api.namespace, "applied")
    (listed,) = (await cluster.list_targets(SECRET, namespace=api.namespace)).targets

    assert target.obj["metadata"]["annotations"] == listed.obj["metadata"]["annotations"] == {"note": "kept"}


async def test_pages_of_targets_show_one_state_until_the_token_is_too_old(api, server, cluster):
    for name in "abcde":
        await api.secret(name)
    limit = pages_of_two(cluster)

    first = await cluster.list_targets(SECRET, namespace=api.namespace, **limit)
    await api.delete(api.secrets("d"))
    second = await cluster.list_targets(SECRET, namespace=api.namespace, continue_token=first.continue_token, **limit)
    server.compact()
    rest = await cluster.list_targets(SECRET, namespace=api.namespace, continue_token=second.continue_token, **limit)

    names = [[one.obj["metadata"]["name"] for one in page.targets] for page in (first, second, rest)]
    assert names == [["a", "b"], ["c", "d"], ["e"]]
    assert first.resource_version == second.resource_version != rest.resource_version


# A pass


async def test_pass_finds_the_reference_of_a_pod_template(api, cluster):
    await api.secret("used")
    await api.secret("unused")
    await with_volume(api, "report", "used")
    reader = UsageReader(cluster, shipped_carriers())

    for namespace in ("", api.namespace):
        held = await reader.hold_targets()
        found = await reader.look(held.names(), namespaces=(namespace,) if namespace else (), held=held)
        seen: dict[str, Observation] = {}
        async for page in reader.targets(SECRET, held=held):
            mine = (one.obj for one in page if ref_of(one.obj).namespace == api.namespace)
            seen |= {obj["metadata"]["name"]: found.observe(obj) for obj in mine}

        assert found.of.find_problem() == ""
        (reference,) = seen["used"].references
        assert (reference.source.kind, reference.source.name) == ("Job", "report")
        assert reference.path == "spec.template.spec.volumes[0].secret.secretName"
        assert seen["unused"].is_unused
        assert {"pods", "jobs.batch", "secrets", "configmaps"} <= found.of.versions.keys()
        assert found.of.started_at <= found.of.completed_at


async def test_pass_finds_the_reference_of_an_unknown_custom_resource_in_another_namespace(api, cluster, crds):
    await api.secret("used")
    await crds.install("Gizmo", "gizmos", "v1", scope="Cluster")
    spec = {"secretRef": {"name": "used", "namespace": api.namespace}}
    await crds.create("v1", "gizmos", "Gizmo", namespace=False, spec=spec)

    target = await cluster.get_target(SECRET, api.namespace, "used")
    reader = UsageReader(cluster, shipped_carriers())
    found = await reader.look(names_of([target.obj]), namespaces=(api.namespace,))

    assert [one.path for one in found.observe(target.obj).references] == ["spec.secretRef.name"]
    await crds.remove("gizmos")
