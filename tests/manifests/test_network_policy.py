"""components/network-policy: each Pod can do what it does, and no more; that it is enforced is up to the network."""

import re

import pytest
import yaml

from shared.adapters.config.timers_address import NatsAddress
from tests.manifests.composed import composed, pods, selects
from tests.manifests.test_manifests import KNATIVE, build, of_kind, pod_specs, publishers, settings_of
from tests.snippets import DOCS, read_blocks

SOURCES = ("kind-job", "source-apiserver/job", "dead-letter", "prometheus", "network-policy")
BROKER, API_SERVER, DNS = {80, 443, 8080, 8443}, {443, 6443}, {53, 5353}
QUEUE_PROXY = {8012, 8013, 8022, 8112, 9090, 9091}
FILES_OF_TRACES = ("kustomization", "collector")


VARIANTS = [
    *("functions", "timers-sqlite", "timers-nats", "source-watch", "standalone"),
    *("overlays/production", "overlays/production-nats"),
]


@pytest.fixture(params=VARIANTS, scope="module")
def objects(request):
    if request.param.startswith("overlays/"):
        return build(KNATIVE / request.param)
    if request.param == "standalone":
        return composed("standalone", "prometheus", "network-policy", base="namespace")
    return composed(*([] if request.param == "functions" else [request.param]), *SOURCES)


def flows(objects, labels, direction):
    """(namespaces, ports) of each flow that is open to a Pod; the namespaces None where any address will do."""
    found = []
    for policy in of_kind(objects, "NetworkPolicy").values():
        if not selects(policy["spec"]["podSelector"], labels):
            continue
        for rule in policy["spec"].get(direction, []):
            peers = rule.get("from" if direction == "ingress" else "to")
            names = peers and frozenset(name for peer in peers for name in names_of(peer["namespaceSelector"]))
            found.append((names, {port["port"] for port in rule["ports"]}))
    return found


def names_of(selector):
    named = [selector["matchLabels"]["kubernetes.io/metadata.name"]] if "matchLabels" in selector else []
    return [*named, *(value for one in selector.get("matchExpressions", []) for value in one["values"])]


def senders(objects):
    return publishers(objects) | adapters(objects)


def adapters(objects):
    """Those that Knative runs for an ApiServerSource, of its own image."""
    return {f"adapter {name}" for name in of_kind(objects, "ApiServerSource")}


def askers(objects):
    """Who has a token for the API server; adapters always do."""
    with_token = {name for name, spec in pod_specs(objects) if has_token(spec)}
    return with_token | adapters(objects)


def has_token(spec):
    projected = [
        source for volume in spec.get("volumes", []) for source in volume.get("projected", {"sources": []})["sources"]
    ]
    tokens = [one["serviceAccountToken"] for one in projected if "serviceAccountToken" in one]
    return spec.get("automountServiceAccountToken", True) or any("audience" not in one for one in tokens)


def test_default_deny_covers_every_pod_and_each_policy_opens_one_direction(objects):
    deny = of_kind(objects, "NetworkPolicy")["default-deny"]["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name, policy in of_kind(objects, "NetworkPolicy").items():
        spec = policy["spec"]
        assert spec["policyTypes"] in (["Ingress"], ["Egress"]) or name == "default-deny"
        for direction in ("ingress", "egress"):
            assert bool(spec.get(direction)) == (spec["policyTypes"] == [direction.capitalize()])


def test_only_clients_of_the_api_server_may_reach_it(objects):
    for name, labels in pods(objects).items():
        open_to_all = [ports for names, ports in flows(objects, labels, "egress") if names is None]
        assert DNS in open_to_all, name
        assert (API_SERVER in open_to_all) == (name in askers(objects)), name


def test_only_publishers_may_reach_the_broker_and_only_timers_nats(objects):
    for name, labels in pods(objects).items():
        to_namespaces = [flow for flow in flows(objects, labels, "egress") if flow[0]]
        expected = [(frozenset({"knative-eventing"}), BROKER)] if name in senders(objects) else []
        if name == "timers" and isinstance(settings_of(objects).timers, NatsAddress):
            expected.append((frozenset({"nats"}), {4222}))
        assert sorted(to_namespaces, key=str) == sorted(expected, key=str), name


def test_events_come_from_knative_only(objects):
    for name, labels in pods(objects).items():
        from_knative = [flow for flow in flows(objects, labels, "ingress") if "knative-eventing" in flow[0]]
        if "serving.knative.dev/service" in labels:
            ((namespaces, ports),) = from_knative
            assert ports == QUEUE_PROXY, name
            assert {"knative-eventing", "knative-serving"} <= namespaces
        else:
            assert from_knative == ([(frozenset({"knative-eventing"}), {8080})] if name == "timers" else []), name


def test_prometheus_reaches_the_metrics_port(objects):
    port = settings_of(objects).metrics_port
    for name, labels in pods(objects).items():
        ports = [ports for namespaces, ports in flows(objects, labels, "ingress") if namespaces == {"monitoring"}]
        assert ports == ([] if name in adapters(objects) else [{port, 9091}]), name


def test_policy_of_the_how_to_lets_each_function_reach_the_collector_and_nothing_else(objects):
    blocks = {block.file: block.text for block in read_blocks(DOCS / "how-to" / "trace-deletions.md") if block.file}
    overlay, policy = (yaml.safe_load(blocks[f"knative/overlays/traced/{name}.yaml"]) for name in FILES_OF_TRACES)
    endpoint = re.search(r"http://collector\.(\w+):(\d+)", str(overlay))
    assert endpoint is not None
    collector = frozenset({endpoint[1]}), {int(endpoint[2])}

    for name, labels in pods(objects).items():
        before, after = flows(objects, labels, "egress"), flows((*objects, policy), labels, "egress")
        assert collector not in before, name
        assert after == ([*before] if name in adapters(objects) else [*before, collector]), name
        assert flows((policy,), labels, "ingress") == []


def test_every_flow_selects_existing_pods():
    builds = (SOURCES, ("timers-sqlite", "source-watch", *SOURCES), ("timers-nats", *SOURCES))
    labels = [pod for names in builds for pod in pods(composed(*names)).values()]
    for name, policy in of_kind(composed(*SOURCES), "NetworkPolicy").items():
        assert any(selects(policy["spec"]["podSelector"], pod) for pod in labels), name
