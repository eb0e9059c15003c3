"""No data of a Secret or of a ConfigMap reaches this process: what is requested, and the bytes that come back."""

from base64 import b64encode

import pytest

from shared.adapters import http_client
from shared.adapters.kubernetes import bodies
from shared.adapters.kubernetes.bodies import TABLE
from shared.adapters.kubernetes.connect import connect
from shared.adapters.kubernetes.requests import ApiServer
from shared.core.policy.usage import USAGE_KINDS
from shared.core.references.reference import TargetKind
from shared.core.ttl.edits import release
from shared.core.usage.mark import hold_unused
from shared.core.values.objects import ObjectRef, get_annotations
from shared.evaluation.usage_reader import UsageReader
from shared.usecases.hold import write
from tests.references import shipped_carriers

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("server", ["embedded", "real"], indirect=True)]

CANARY = b"canary-of-the-test-of-privacy"
FORMS = (CANARY, b64encode(CANARY))


@pytest.fixture
def recorded(monkeypatch):
    """The requests of this process, and the bytes of their answers."""
    requests, answers = [], []
    request, read = ApiServer.request, http_client.read_up_to

    async def recording(self, method, path, **options):
        requests.append((method, path, options.get("accept", "application/json")))
        return await request(self, method, path, **options)

    async def reading(bytes_max, response):
        body, is_whole = await read(bytes_max, response)
        answers.append(body)
        return body, is_whole

    monkeypatch.setattr(ApiServer, "request", recording)
    monkeypatch.setattr(bodies, "read_up_to", reading)
    return requests, answers


async def test_secrets_and_config_maps_are_requested_without_their_data(api, server, recorded):
    requests, answers = recorded
    data = {"key": b64encode(CANARY).decode()}
    await api.post(api.secrets(), {"metadata": {"name": "hidden"}, "data": data})
    await api.post(api.config_maps(), {"metadata": {"name": "hidden"}, "data": {"key": CANARY.decode()}})
    cluster = await connect(kubeconfig=str(server.kubeconfig))
    reader = UsageReader(cluster, shipped_carriers())

    held = await reader.hold_targets()
    names = held.names()
    found = await reader.look(names, held=held)
    await reader.look(names, namespaces=(api.namespace,))
    for kind in TargetKind:
        pages = [page async for page in reader.targets(kind, namespace=api.namespace)]
        assert "hidden" in [one.obj["metadata"]["name"] for page in pages for one in page]
        assert await cluster.get_target(kind, api.namespace, "hidden") is not None
    await cluster.close()

    assert found.of.find_problem() == ""
    about = [one for one in requests if {"secrets", "configmaps"} & {*one[1].partition("?")[0].split("/")}]
    assert len(about) >= 8
    assert {(method, accept) for method, _, accept in about} == {("GET", TABLE)}
    assert all("includeObject=Metadata" in path for _, path, _ in about)
    assert not [body for body in answers if any(form in body for form in FORMS)]


@pytest.mark.parametrize("kind", TargetKind)
async def test_object_is_read_whole_only_on_demand(api, server, kind):
    data = {"key": b64encode(CANARY).decode()}
    path = api.secrets() if kind is TargetKind.SECRET else api.config_maps()
    created = (await api.post(path, {"metadata": {"name": "hidden"}, "data": data})).body
    cluster = await connect(kubeconfig=str(server.kubeconfig))

    snapshot = await cluster.get_with_data(kind, api.namespace, "hidden")
    absent = await cluster.get_with_data(kind, api.namespace, "absent")
    await cluster.close()

    assert snapshot is not None
    assert snapshot.obj == {**created, "apiVersion": "v1", "kind": str(kind)}
    assert absent is None


@pytest.mark.parametrize("rule", USAGE_KINDS.rules, ids=lambda rule: rule.kind)
async def test_hold_and_release_get_no_data(api, server, recorded, rule):
    _, answers = recorded
    data = {"key": b64encode(CANARY).decode() if rule.kind == "Secret" else CANARY.decode()}
    await api.post(api.path(rule.plural), {"metadata": {"name": "hidden"}, "data": data})
    cluster = await connect(kubeconfig=str(server.kubeconfig))
    ref = ObjectRef("v1", rule.kind, api.namespace, "hidden", "")

    await write(rule, ref, lambda obj: hold_unused(obj, rule, "read by a script"), editor=cluster)
    held = (await api.get(api.path(rule.plural, "hidden"))).body
    await write(rule, ref, lambda obj: release(obj, rule), editor=cluster)
    released = (await api.get(api.path(rule.plural, "hidden"))).body
    await cluster.close()

    assert get_annotations(held) == {"hold": "read by a script"}
    assert get_annotations(released) == {}
    assert held["data"] == released["data"] == data
    assert not [body for body in answers if any(form in body for form in FORMS)]
