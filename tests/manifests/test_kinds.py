"""components/kinds: rules of the user's own, mounted where objects are looked at; beside a policy and tokens."""

import json
import subprocess
import sys
from itertools import permutations

import pytest

from shared.adapters.config.kind_files import read_rule_files
from shared.adapters.config.settings import read_settings
from shared.bootstrap.config import read_config
from tests.builders import FRONT, ROOT, shipped_kinds
from tests.manifests.composed import composed
from tests.manifests.test_manifests import KNATIVE, of_kind, pod_specs

FOLDER = "/etc/ttl-after-finished-kinds"
READERS = {"schedule", "expire", "enforce", "archive", "sweep", "usage"}
ORDERS = [
    *(pytest.param(order, "base", READERS, id="-".join(order)) for order in permutations(("kinds", "policy"))),
    pytest.param(("dead-letter", "timers-sqlite", "kinds", "policy", "eventpolicy"), "base", READERS, id="tokens"),
    pytest.param(("source-watch", "kinds", "policy"), "base", READERS | {"source"}, id="watch"),
    pytest.param(("standalone", "policy", "kinds"), "namespace", {"standalone"}, id="standalone"),
]


def environment(spec):
    (container,) = spec["containers"]
    return {one["name"]: one["value"] for one in container.get("env", [])}


def mounts(spec):
    """What a container finds mounted: the ConfigMap by the folder."""
    (container,) = spec["containers"]
    volumes = {one["name"]: one for one in spec.get("volumes", [])}
    return {
        one["mountPath"]: volumes[one["name"]]["configMap"]["name"]
        for one in container.get("volumeMounts", [])
        if "configMap" in volumes.get(one["name"], {})
    }


@pytest.mark.parametrize(("components", "base", "readers"), ORDERS)
def test_functions_mount_rules_and_policy_by_their_hash_in_any_order(components, base, readers):
    objects = composed(*components, base=base)
    (kinds,) = [name for name in of_kind(objects, "ConfigMap") if name.startswith("kinds-")]
    (policy,) = [name for name in of_kind(objects, "ConfigMap") if name.startswith("policy-")]
    for name, spec in pod_specs(objects):
        is_reader = name in readers
        assert (environment(spec).get("TTL_KINDS_DIR") == FOLDER) is is_reader, name
        assert (environment(spec).get("TTL_POLICY") == "/etc/ttl-after-finished/policy.yaml") is is_reader, name
        expected = {FOLDER: kinds, "/etc/ttl-after-finished": policy} if is_reader else {}
        assert mounts(spec) == expected, name


def test_mounts_are_not_nested():
    for name, spec in pod_specs(composed("timers-sqlite", "kinds", "policy", "eventpolicy")):
        folders = [one["mountPath"] for one in spec["containers"][0].get("volumeMounts", [])]
        assert not [(a, b) for a, b in permutations(folders, 2) if b.startswith(f"{a}/")], name


def test_every_function_starts_with_a_kind_of_a_mounted_rule():
    objects = composed("dead-letter", "timers-sqlite", "source-watch", "kinds")
    for name, spec in pod_specs(objects):
        reported = environment(spec)
        folder = KNATIVE / "components" / "kinds" / "rules"
        theirs = {"TTL_KINDS_DIR": str(folder)} if "TTL_KINDS_DIR" in reported else {}
        settings = {"TTL_KINDS": reported.get("TTL_KINDS", "jobs,renders"), **theirs}
        assert read_config(read_settings(environment=settings)).catalogue.rules, name
    assert [name for name, spec in pod_specs(objects) if "TTL_KINDS" in environment(spec)] == ["deadletter", "timers"]


def test_example_is_a_rule_for_a_kind_that_is_not_shipped():
    (example,) = [one for one in read_rule_files(KNATIVE / "components" / "kinds" / "rules") if not one.is_shipped]
    assert example.replaces is None
    assert example.rule.name == example.path.stem
    assert not shipped_kinds().of(example.rule.group, example.rule.kind)


def test_config_map_holds_every_file_of_the_folder():
    (config,) = [obj for name, obj in of_kind(composed("kinds"), "ConfigMap").items() if name.startswith("kinds-")]
    folder = KNATIVE / "components" / "kinds" / "rules"
    assert config["data"] == {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("function", ["schedule", "expire", "enforce", "archive", "sweep"])
def test_invalid_rule_ends_the_function_with_file_and_line(function, tmp_path):
    rule = (KNATIVE / "components/kinds/rules/renders.example.com.yaml").read_text()
    (tmp_path / "renders.example.com.yaml").write_text(rule.replace("propagation: Background", "propagation: Later"))
    server = [sys.executable, "-m", "uvicorn", "functions_framework.aio:app", "--http", FRONT, "--lifespan", "on"]
    environment = {
        "PATH": "/usr/bin:/bin",
        "FUNCTION_TARGET": function,
        "FUNCTION_SOURCE": str(ROOT / "functions" / f"{function}.py"),
        "TTL_KINDS_DIR": str(tmp_path),
        "K_SINK": "http://127.0.0.1:9",
    }
    done = subprocess.run(
        [*server, "--port", "0"], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    line = 1 + rule.splitlines().index("propagation: Background")
    assert done.returncode != 0
    assert json.loads(done.stderr.splitlines()[-1])["message"] == (
        f"renders.example.com.yaml:{line}: propagation: expected 'Background', 'Foreground' or 'Orphan', got 'Later'"
    )
    assert "Traceback" not in done.stderr
