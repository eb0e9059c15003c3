"""The Helm chart makes the objects that kustomize makes."""

import random
import re

import pytest

from tests.chart.builds import EXCLUSIVE
from tests.chart.files import CHART, overlays
from tests.chart.kustomizations import GENERATED as CONFIG_MAPS
from tests.chart.kustomizations import LAST, components, selectable
from tests.chart.schema import schema
from tests.helm import RELEASE, helm, needs_helm, rendered
from tests.manifests.composed import GENERATED, composed
from tests.manifests.test_manifests import KNATIVE, build, containers

KEEP = "helm.sh/resource-policy"
"""Only the chart has this annotation."""
WHOLE = {"namespace": {"create": True}}
SETS: list[tuple[str, ...]] = [
    ("kind-trainjob", "delete-guard/trainjob", "source-apiserver/trainjob", "sweep", "timers-sqlite"),
    ("dead-letter", "kinds", "policy", "usage-references", "prometheus", "high-availability", "eventpolicy"),
    ("timers-nats", "timers-nats/credentials", "timers-nats/tls", "archive/credentials", "eventpolicy"),
    ("usage", "usage-all-kinds", "usage-guard", "usage-warning", "policy", "network-policy"),
    ("guardrails", "source-watch", "deadline-delete/job", "deadline-delete/pod"),
    ("standalone", "usage-rights", "archive/folder", "kinds", "policy", "high-availability/standalone"),
]
"""Components in the order of an overlay."""

NAME = re.compile(r"(?<![\w/.-])ttl-after-finished(?![\w/.-])")
"""Where it is not a part of another name."""
NAMED_SO = {
    *("app.kubernetes.io/name", "app.kubernetes.io/part-of", "audience", "command", "message", "name", "resourceNames"),
    *("renders.example.com.yaml", "ttl-after-finished.json", "value", "values"),
}
"""The fields in which it is the name of the program, of its Lease, audience or Pods, not of its namespace."""

pytestmark = [pytest.mark.verify, needs_helm]


def random_set(seed: int) -> tuple[str, ...]:
    """Components that kustomize takes together."""
    chosen = {name for name in components() if random.Random(f"{seed} {name}").random() < 0.5}
    chosen -= {"usage-rights"} if "usage" in chosen else set()
    for pair in EXCLUSIVE:
        chosen -= {max(pair)} if pair <= chosen else set()
    return tuple(name for name in components() if name in chosen)


def base_of(names):
    return "namespace" if "standalone" in names else "base"


def by_name(objects):
    """The objects by kind and name, without what only the chart has."""
    found = {}
    for obj in objects:
        metadata = {**obj["metadata"]}
        annotations = {key: value for key, value in metadata.pop("annotations", {}).items() if key != KEEP}
        metadata |= {"annotations": annotations} if annotations else {}
        found[obj["apiVersion"], obj["kind"], metadata["name"]] = {**obj, "metadata": metadata}
    assert len(found) == len(objects)
    return found


def leaves(node, key=""):
    """Each text of an object, and the field that it is in."""
    if isinstance(node, dict):
        yield from (leaf for name, one in node.items() for leaf in leaves(one, name))
    elif isinstance(node, list):
        yield from (leaf for one in node for leaf in leaves(one, key))
    else:
        yield key, str(node)


def values_of(names):
    """The values that compose what `composed` does of these components."""
    names = list(names)
    files = {
        CONFIG_MAPS[name]: {path.name: path.read_text() for path in KNATIVE.glob(GENERATED[name][1])}
        for name in names
        if name in CONFIG_MAPS
    }
    on = {name: True for name in names if name not in CONFIG_MAPS}
    return {"overlay": "base", "components": on, "configMaps": files, **WHOLE}


# The same objects


@pytest.mark.parametrize("overlay", overlays())
def test_chart_makes_the_objects_of_an_overlay(overlay):
    assert by_name(rendered({"overlay": overlay, **WHOLE})) == by_name(build(KNATIVE / "overlays" / overlay))


def test_chart_without_an_overlay_makes_the_objects_of_the_base():
    assert by_name(rendered({"overlay": "base", **WHOLE})) == by_name(composed())


@pytest.mark.parametrize("names", [*SETS, *map(random_set, range(12))], ids=lambda names: "+".join(names)[:60])
def test_chart_makes_the_objects_of_components(names):
    assert by_name(rendered(values_of(names))) == by_name(composed(*names, base=base_of(names)))


def test_each_component_is_a_value_or_comes_with_its_files():
    assert {*selectable(), *CONFIG_MAPS} == set(components())
    assert set(LAST) <= set(components())
    assert {name: found for name, (found, _) in GENERATED.items()} == CONFIG_MAPS


@pytest.mark.parametrize("pair", [sorted(pair) for pair in EXCLUSIVE], ids="+".join)
def test_chart_refuses_components_that_kustomize_refuses(pair):
    with pytest.raises(AssertionError, match=r"kustomize|accumulating|patch|test"):
        composed(*pair, base=base_of(pair))
    done = helm("template", str(CHART), values={"components": dict.fromkeys(pair, True)})
    assert done.returncode != 0
    assert "exclude each other" in done.stderr


# What only the chart has


def test_generated_config_maps_and_claims_stay_after_an_upgrade():
    names = ("standalone", "archive/folder", "kinds", "policy", "usage-references")
    kept = [obj for obj in rendered(values_of(names)) if KEEP in obj["metadata"].get("annotations", {})]
    assert {(obj["kind"], obj["metadata"]["name"].rsplit("-", 1)[0]) for obj in kept} == {
        ("PersistentVolumeClaim", "archive"),
        *(("ConfigMap", name) for name in ("settings", *CONFIG_MAPS.values())),
    }


@pytest.mark.parametrize("alone", [False, True])
def test_namespace_is_that_of_the_release_everywhere(alone):
    values = values_of(name for name in components() if not any(name in pair for pair in EXCLUSIVE))
    values["components"] |= {"standalone": alone, "timers-sqlite": not alone}
    texts = list(leaves(rendered(values, namespace="elsewhere")))
    assert {key for key, text in texts if NAME.search(text)} <= NAMED_SO
    assert {"namespace", "TTL_NAMESPACE", "expression", "K_SINK"} <= {key for key, text in texts if "elsewhere" in text}


def test_namespace_is_not_in_the_chart_unless_a_value_asks_for_it():
    assert not [obj for obj in rendered({}) if obj["kind"] == "Namespace"]


def test_values_take_precedence_over_the_overlay():
    values = {
        "settings": {"TTL_KINDS": "pods"},
        "components": {"source-apiserver/job": False},
        "sweepSchedule": "7 * * * *",
        "image": {"repository": "example.com/ttl", "digest": f"sha256:{'0' * 64}"},
    }
    objects = rendered(values)
    (settings,) = [obj for obj in objects if obj["metadata"]["name"].startswith("settings-")]
    (ping,) = [obj for obj in objects if obj["kind"] == "PingSource"]
    assert settings["data"]["TTL_KINDS"] == "pods"
    assert settings["data"]["TTL_SWEEP_INTERVAL"] == "1m"
    assert [obj["metadata"]["name"] for obj in objects if obj["kind"] == "ApiServerSource"] == ["pod"]
    assert ping["spec"]["schedule"] == "7 * * * *"
    assert f"example.com/ttl@sha256:{'0' * 64}" in str(objects)
    assert "ghcr.io" not in str(objects)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"overlay": "prod"}, "/overlay"),
        ({"components": {"promotheus": True}}, "promotheus"),
        ({"components": {"prometheus": "yes"}}, "/components/prometheus"),
        ({"settings": {"TTL_DRY_RUN": True}}, "/settings/TTL_DRY_RUN"),
        ({"settings": {"TTL_DRYRUN": "true"}}, "at '/settings': additional properties 'TTL_DRYRUN' not allowed"),
        ({"settings": {"TTL_ARCHIVE_KEYS": "x" * 32}}, "at '/settings': additional properties 'TTL_ARCHIVE_KEYS'"),
        ({"configMaps": {"policy": {"policy.yaml": {"rules": []}}}}, "/configMaps/policy"),
        ({"configMaps": {"policy": {"rules.yaml": "rules: []"}}}, "rules.yaml"),
        ({"configMaps": {"kinds": {"a kind.yaml": ""}}}, "a kind.yaml"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"replicas": 2}, "replicas"),
        ({"overlay": None}, "missing property 'overlay'"),
        ({"image": None}, "missing property 'image'"),
        ({"image": {"repository": None}}, "missing property 'repository'"),
    ],
)
def test_schema_rejects_invalid_values(values, said):
    done = helm("template", str(CHART), values=values)
    assert done.returncode != 0
    assert said in done.stderr


def test_section_without_a_value_is_empty():
    """As in a values file whose section has only comments."""
    sections = dict.fromkeys(("components", "settings", "configMaps", "namespace"))
    assert rendered(sections) == rendered({})


TEXTS = ['x"\ny: z', "it's", "{{ .Values }}", "# c", "---\nkind: X", " x ", "null", "*a", "\\"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_a_value_stays_as_it_is(text):
    values = {
        "overlay": "production",
        "settings": {"TTL_CLUSTER": text},
        "configMaps": {"policy": {"policy.yaml": text}, "kinds": {"a.yaml": text}, "references": {"a.yml": text}},
        "image": {"repository": text, "tag": text},
        "sweepSchedule": text,
    }
    objects = rendered(values)
    data = [obj.get("data", {}) for obj in objects if obj["kind"] == "ConfigMap"]
    (ping,) = [obj for obj in objects if obj["kind"] == "PingSource"]
    assert [one["TTL_CLUSTER"] for one in data if "TTL_CLUSTER" in one] == [text]
    assert all({name: text} in data for name in ("policy.yaml", "a.yaml", "a.yml"))
    assert {container["image"] for _, container in containers(tuple(objects))} == {f"{text}:{text}"}
    assert ping["spec"]["schedule"] == text


def test_schema_takes_each_setting_and_variables_of_client_libraries():
    names = [*schema([])["properties"]["settings"]["properties"], "AWS_REGION", "TZ", "no_proxy"]
    objects = rendered({"settings": dict.fromkeys(names, "x"), "overlay": "base"})
    (settings,) = [obj for obj in objects if obj["metadata"]["name"].startswith("settings-")]
    assert settings["data"].keys() >= set(names)


# The chart itself


@pytest.mark.parametrize("overlay", ["base", *overlays()])
def test_helm_lints_the_chart(overlay):
    done = helm("lint", "--strict", str(CHART), values={"overlay": overlay})
    assert done.returncode == 0, done.stdout + done.stderr


def test_notes_name_the_kinds_and_the_next_command():
    done = helm("install", RELEASE, str(CHART), "--dry-run=client", "--namespace=elsewhere", values={})
    assert "of these kinds: jobs,pods" in done.stdout
    assert "kubectl ttl doctor --namespace elsewhere" in done.stdout
