"""The overlay of docs/explanation/overlays.md, put together as its readers do: one kustomization.yaml, and files."""

import re
import shutil

import pytest
import yaml

from tests.manifests.test_manifests import KNATIVE, build, of_kind, pod_specs

PAGES = "".join((KNATIVE.parent / "docs/explanation" / name).read_text() for name in ("overlays.md", "guard-rails.md"))
OVERLAY, *FRAGMENTS = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", PAGES, re.DOTALL))
FILES = {
    "render.yaml": (KNATIVE / "components/kinds/rules/renders.example.com.yaml").read_text(),
    "policy.yaml": (KNATIVE / "components/policy/policy.yaml").read_text(),
}
MORE = ("kinds", "policy", "eventpolicy", "guardrails")


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """`An overlay of your own`, with all that later sections add to one."""
    *first, release = OVERLAY["components"]
    joined = {key: [*OVERLAY.get(key, ()), *parts(key)] for key in ("configMapGenerator", "patches")}
    components = [*first, *(f"../../components/{name}" for name in MORE), release]
    manifests = tmp_path_factory.mktemp("readme") / "knative"
    shutil.copytree(KNATIVE, manifests)
    mine = manifests / "overlays" / "mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(yaml.safe_dump({**OVERLAY, **joined, "components": components}))
    for name, text in FILES.items():
        (mine / name).write_text(text)
    return build(mine)


def parts(key):
    return [one for fragment in FRAGMENTS for one in fragment.get(key, ())]


@pytest.mark.parametrize(("name", "file"), [("kinds", "render.yaml"), ("policy", "policy.yaml")])
def test_mounted_config_map_holds_the_files_of_the_user_only(objects, name, file):
    (config,) = [
        one for one in of_kind(objects, "ConfigMap").values() if one["metadata"]["name"].startswith(f"{name}-")
    ]
    volumes = {
        volume["name"]: volume for pod, spec in pod_specs(objects) if pod == "expire" for volume in spec["volumes"]
    }
    assert config["data"] == {file: FILES[file]}
    assert config["metadata"]["labels"]["app.kubernetes.io/component"] == name
    assert volumes[name]["configMap"]["name"] == config["metadata"]["name"]


def test_patches_of_the_documented_overlay_change_their_targets(objects):
    identities = [one["sub"] for one in of_kind(objects, "EventPolicy")["sources"]["spec"]["from"]]
    holds = of_kind(objects, "ValidatingAdmissionPolicy")["ttl-after-finished-holds"]
    assert any(":workflows-" in identity for identity in identities)
    assert "sre" in holds["spec"]["variables"][0]["expression"]
