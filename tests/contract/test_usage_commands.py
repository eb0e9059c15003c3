"""What the commands about references request: no Secret in full, and no ConfigMap but those of the installation."""

import asyncio
import os
from base64 import b64encode

import pytest

from shared.adapters.clock import SystemClock
from shared.adapters.config.policy_file import parse_policy
from shared.adapters.kubernetes.bodies import METADATA, TABLE
from shared.core.values.objects import ANNOTATION_DOMAIN
from shared.devserver.apiserver import EmbeddedApiServer, Store, WriteOptions, serve, write_kubeconfig
from shared.devserver.apiserver.errors import StatusError
from shared.devserver.apiserver.resources import CONFIG_MAPS, NAMESPACES, SECRETS
from shared.safeguards.state_schema import hash_unused_rules, parse_accepted_plan
from tests.builders import COMMAND, shipped_kinds

pytestmark = pytest.mark.anyio

OPTIONS = WriteOptions(manager="test")
HOMES = ("ttl-after-finished", "default")
"""The namespaces of an installation and of a `run`: its settings, policy and shared state are in ConfigMaps."""


async def run(kubeconfig, *words):
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*COMMAND, *words, env=environment, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


class Asked:
    """Records each request: method, path, accepted media types, query."""

    def __init__(self):
        self.requests = []

    async def __call__(self, request):
        self.requests.append((request.method, request.url.path, request.headers.get("accept", ""), request.url.query))


@pytest.fixture
def store():
    """A cluster with the namespace ci."""
    store = Store(SystemClock().now)
    store.create(NAMESPACES, "", {"metadata": {"name": "ci"}}, OPTIONS)
    return store


@pytest.mark.parametrize(
    "words",
    [
        ("references", "secret/hidden", "-n", "ci"),
        ("references", "configmap/hidden", "-n", "ci", "-o", "json"),
        ("explain", "secret/hidden", "-n", "ci"),
        ("unused",),
    ],
    ids=" ".join,
)
async def test_command_requests_secrets_and_config_maps_without_their_data(words, tmp_path, store):
    asked = Asked()
    store.create(SECRETS, "ci", {"metadata": {"name": "hidden"}, "data": {"a": b64encode(b"x").decode()}}, OPTIONS)
    store.create(CONFIG_MAPS, "ci", {"metadata": {"name": "hidden"}, "data": {"a": "x"}}, OPTIONS)
    async with serve(EmbeddedApiServer(store, intercept=asked)) as url:
        code, out, err = await run(write_kubeconfig(tmp_path / "kubeconfig", url), *words)

    assert (code, err) == (0, ""), out
    assert "hidden" in out
    secrets = [one for one in asked.requests if "secrets" in one[1].split("/")]
    config_maps = [one for one in asked.requests if "configmaps" in one[1].split("/")]
    elsewhere = [one for one in config_maps if not any(f"/namespaces/{home}/" in one[1] for home in HOMES)]
    assert secrets
    assert elsewhere
    assert {(method, accept) for method, _, accept, _ in (*secrets, *elsewhere)} == {("GET", TABLE)}


@pytest.mark.parametrize("kind", ["secret", "configmap"])
async def test_hold_and_release_return_only_metadata(kind, tmp_path, store):
    asked = Asked()
    resource = SECRETS if kind == "secret" else CONFIG_MAPS
    marked = {f"{ANNOTATION_DOMAIN}/unused-since": "2026-03-14T15:00:00Z", f"{ANNOTATION_DOMAIN}/unused-hash": "0"}
    marked["team"] = "web"
    data = {"a": b64encode(b"x").decode()}
    store.create(resource, "ci", {"metadata": {"name": "web", "annotations": marked}, "data": data}, OPTIONS)
    async with serve(EmbeddedApiServer(store, intercept=asked)) as url:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", url)
        code, out, err = await run(kubeconfig, "hold", f"{kind}/web", "-n", "ci", "--reason", "read by a script")
        held = store.get(resource, "ci", "web")
        again = await run(kubeconfig, "release", f"{kind}/web", "-n", "ci")
        released = store.get(resource, "ci", "web")

    assert (code, err) == (0, ""), out
    assert "kept (held)" in out
    assert held["metadata"]["annotations"] == {f"{ANNOTATION_DOMAIN}/hold": "read by a script", "team": "web"}
    assert (again[0], again[2]) == (0, ""), again
    assert released["metadata"]["annotations"] == {"team": "web"}
    assert released["data"] == data
    about = {(method, accept, query) for method, path, accept, query in asked.requests if path.endswith("/web")}
    assert about == {("GET", METADATA, ""), ("PATCH", TABLE, "includeObject=None")}


async def test_hold_of_an_absent_secret_writes_nothing(tmp_path, store):
    asked = Asked()
    async with serve(EmbeddedApiServer(store, intercept=asked)) as url:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", url)
        code, _, err = await run(kubeconfig, "hold", "secret/web", "-n", "ci", "--reason", "why")

    assert code == 1
    assert "no Secret web in namespace ci" in " ".join(err.split())
    assert {method for method, *_ in asked.requests} == {"GET"}


async def test_hold_of_a_secret_without_the_right_to_patch_names_the_refusal(tmp_path, store):
    store.create(SECRETS, "ci", {"metadata": {"name": "web"}}, OPTIONS)

    async def refuse(request):
        if request.method == "PATCH":
            raise StatusError(403, "Forbidden", "secrets is forbidden")

    async with serve(EmbeddedApiServer(store, intercept=refuse)) as url:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", url)
        code, _, err = await run(kubeconfig, "hold", "secret/web", "-n", "ci", "--reason", "why")

    assert code == 1
    assert "forbidden" in err.lower()


POLICY = """apiVersion: ttlafterfinished.dev/v1
kind: Policy
rules:
  - name: leftovers
    match: {kinds: [configmaps], namespaces: {names: [ci]}}
    unused: {ttl: 7d, neverUsed: true}
"""


async def plan_and_accept(tmp_path, store, *words, intercept=None, policy=POLICY):
    store.create(NAMESPACES, "", {"metadata": {"name": HOMES[0]}}, OPTIONS)
    (tmp_path / "policy.yaml").write_text(policy)
    async with serve(EmbeddedApiServer(store, intercept=intercept)) as url:
        config = write_kubeconfig(tmp_path / "kubeconfig", url)
        return await run(config, "plan", "--accept", "--policy", str(tmp_path / "policy.yaml"), *words)


def state_of(store):
    state = store.table(CONFIG_MAPS).objects.get((HOMES[0], "ttl-after-finished-state"))
    return parse_accepted_plan(state["data"]) if state else None


async def test_accepted_plan_is_recorded_with_the_hash_of_its_rules(tmp_path, store):
    code, _, err = await plan_and_accept(tmp_path, store)

    assert code == 0, err
    assert "accepted: the plan of leftovers" in err
    plan = state_of(store)
    assert plan is not None
    assert plan.rules == {*hash_unused_rules(parse_policy(POLICY, shipped_kinds(), name="policy.yaml")).values()}
    assert plan.by


@pytest.mark.parametrize(
    ("words", "policy", "problem"),
    [
        (("-n", "ci"), POLICY, "expected a plan of all namespaces and kinds"),
        (("-k", "jobs"), POLICY, "expected a plan of all namespaces and kinds"),
        ((), POLICY[: POLICY.index("rules")], "expected a policy that has rules with unused"),
    ],
)
async def test_plan_of_a_part_or_without_such_a_rule_is_not_accepted(tmp_path, store, words, policy, problem):
    code, _, err = await plan_and_accept(tmp_path, store, *words, policy=policy)
    assert (code, state_of(store)) == (2, None)
    assert problem in " ".join(err.split())


async def test_plan_that_exceeds_the_limit_is_not_accepted(tmp_path, store):
    store.create(CONFIG_MAPS, "ci", {"metadata": {"name": "old"}, "data": {"a": "x"}}, OPTIONS)
    code, _, err = await plan_and_accept(tmp_path, store, "--limit", "0")
    assert (code, state_of(store)) == (1, None)
    assert "the plan is not accepted: expected exit code 0, got 3" in err


async def test_plan_is_not_accepted_without_the_right_to_record_it(tmp_path, store):
    async def refuse(request):
        if request.method != "GET" and "configmaps" in request.url.path:
            raise StatusError(403, "Forbidden", "configmaps is forbidden")

    code, _, err = await plan_and_accept(tmp_path, store, intercept=refuse)

    assert (code, state_of(store)) == (1, None)
    assert "expected the right to get and update ConfigMap ttl-after-finished/ttl-after-finished-state" in err
