"""What an overlay of a user's own would be: the base, or the namespace alone, with some components."""

import shutil
import tempfile
from functools import cache
from pathlib import Path

import yaml

from tests.manifests.test_manifests import KNATIVE, Object, build, pod_specs

GENERATED = {
    "kinds": ("kinds", "components/kinds/rules/*.yaml"),
    "policy": ("policy", "components/policy/policy.yaml"),
    "usage-references": ("references", "components/usage-references/rules/*.yaml"),
}
"""Components that want a ConfigMap of the overlay's own, its name, and files for it."""


@cache
def composed(*components: str, base: str = "base") -> tuple[Object, ...]:
    """All objects of the base with these components, in this order, and `release`; the examples are its files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(KNATIVE, folder / "knative")  # kustomize takes relative paths only
        (folder / "overlay").mkdir()
        names = [f"../knative/components/{component}" for component in (*components, "release")]
        kustomization = {
            "resources": [f"../knative/{base}"],
            "components": names,
            "configMapGenerator": [_generator(each, folder / "overlay") for each in components if each in GENERATED],
        }
        (folder / "overlay" / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return build(folder / "overlay")


def overlay_of(kustomization: Object) -> tuple[Object, ...]:
    """All objects of the base in an overlay; its components are named without their folder, and `release` is added."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(KNATIVE, folder / "knative")
        (folder / "overlay").mkdir()
        components = [f"../knative/components/{one}" for one in (*kustomization["components"], "release")]
        whole = {"resources": ["../knative/base"], **kustomization, "components": components}
        (folder / "overlay" / "kustomization.yaml").write_text(yaml.safe_dump(whole))
        return build(folder / "overlay")


def _generator(name: str, overlay: Path) -> Object:
    """As docs/explanation/overlays.md has it; kustomize takes files of the overlay's own folder only."""
    name, files_of = GENERATED[name]
    files = sorted(KNATIVE.glob(files_of))
    for path in files:
        shutil.copy(path, overlay)
    return {"name": name, "namespace": "ttl-after-finished", "files": [path.name for path in files]}


def pods(objects: tuple[Object, ...]) -> dict[str, dict[str, str]]:
    """The labels of the Pods that come of the objects, by function or source; those that Knative adds included."""
    found: dict[str, dict[str, str]] = {}
    for name, _ in pod_specs(objects):
        (owner,) = [obj for obj in objects if obj["metadata"]["name"] == name and "template" in obj.get("spec", {})]
        found[name] = dict(owner["spec"]["template"]["metadata"]["labels"])
        if owner["apiVersion"].startswith("serving.knative.dev/"):
            found[name]["serving.knative.dev/service"] = name
        if owner["kind"] == "ContainerSource":
            found[name]["sources.knative.dev/containerSource"] = name
    for obj in objects:
        if obj["kind"] == "ApiServerSource":
            adapter = {"eventing.knative.dev/source": "apiserver-source-controller"}
            found[f"adapter {obj['metadata']['name']}"] = adapter
    return found


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a label selector matches; an empty one matches everything."""
    if not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions", []))


def _holds(expression: Object, labels: dict[str, str]) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
    raise AssertionError(expression)
