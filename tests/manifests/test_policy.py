"""The policy, mounted where decisions are made and nowhere else."""

import pytest
import yaml

from shared.adapters.config.policy_file import parse_policy
from shared.core.policy.policy import Policy
from shared.installation.installed import find_installed
from shared.installation.inventory import PARTS, Inventory, Listed
from tests.builders import not_none, shipped_kinds
from tests.manifests.composed import composed
from tests.manifests.test_manifests import KNATIVE, of_kind, pod_specs

PATH = "/etc/ttl-after-finished/policy.yaml"
ON_KNATIVE = composed("source-watch", "dead-letter", "policy")
STANDALONE = composed("standalone", "policy", base="namespace")


def mounted(spec):
    """The ConfigMap that a Pod reads its policy from, if it reads one."""
    (container,) = spec["containers"]
    env = {one["name"]: one.get("value") for one in container.get("env", [])}
    if "TTL_POLICY" not in env:
        return None
    assert env["TTL_POLICY"] == PATH
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert mounts["policy"] == "/etc/ttl-after-finished"
    return volumes["policy"]["configMap"]["name"]


@pytest.mark.parametrize(
    ("objects", "readers"),
    [
        (ON_KNATIVE, {"schedule", "expire", "enforce", "archive", "sweep", "usage", "source"}),
        (STANDALONE, {"standalone"}),
    ],
    ids=["knative", "standalone"],
)
def test_deciding_functions_mount_the_policy_by_its_hash(objects, readers):
    (name,) = [name for name in of_kind(objects, "ConfigMap") if name.startswith("policy")]
    found = {pod: mounted(spec) for pod, spec in pod_specs(objects)}

    assert {pod for pod, source in found.items() if source} == readers
    assert {source for source in found.values() if source} == {name}
    assert name != "policy"


@pytest.mark.parametrize("objects", [ON_KNATIVE, STANDALONE], ids=["knative", "standalone"])
def test_installed_policy_is_found_in_the_inventory(objects):
    (name,) = [name for name in of_kind(objects, "ConfigMap") if name.startswith("policy")]
    kinds = {called: called.removeprefix("Knative ") for called in PARTS}
    groups = {called: what.rpartition("/")[0] for called, what in PARTS.items()}
    parts = {
        called: Listed(tuple(obj for obj in objects if (obj["apiVersion"], obj["kind"]) == (groups[called], kind)))
        for called, kind in kinds.items()
    }

    installed = not_none(find_installed(Inventory(parts), "ttl-after-finished"))

    assert (installed.policy_name, installed.problem) == (f"ConfigMap ttl-after-finished/{name}", "")
    assert installed.policy == Policy().with_digest(installed.policy.digest)
    assert "jobs.batch" in not_none(installed.enabled)


def test_shipped_policy_is_valid_and_empty():
    text = (KNATIVE / "components/policy/policy.yaml").read_text()

    policy = parse_policy(text, shipped_kinds(), name="policy.yaml")
    assert policy == Policy().with_digest(policy.digest)


def test_example_of_the_policy_is_valid():
    text = (KNATIVE / "components/policy/policy.yaml").read_text()
    example = [line.removeprefix("#") for line in text.splitlines() if line.startswith("#   ")]
    kinds = {"jobs", "*"}
    rules = yaml.safe_load("\n".join(example))
    for rule in rules:
        rule["match"]["kinds"] = sorted(kinds & {*rule["match"]["kinds"]})

    assert [rule.name for rule in Policy.model_validate({"rules": rules}).rules] == [
        "ci-keeps-three-of-each",
        "everything-else",
    ]
