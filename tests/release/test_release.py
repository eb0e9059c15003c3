"""The checks of a tag, and the workflows."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from shared import __version__
from shared.installation.kubernetes_versions import TESTED, describe_version
from tests.builders import ROOT
from tests.release.krew import PLATFORMS, archive_of, krew_manifest
from tests.release.release import find_notes, find_problems

FILES = ("knative/components/release/kustomization.yaml", "knative/chart/Chart.yaml")
CHANGELOG = """# Changelog

## Unreleased

## 0.1.0 - 2026-01-31

### Added

- A thing.

## 0.0.1 - 2026-01-01

- The first.
"""
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
WORKFLOW = WORKFLOWS["release"]
STEPS = [step for flow in WORKFLOWS.values() for job in flow["jobs"].values() for step in job.get("steps", [])]


@pytest.fixture
def root(tmp_path):
    """A checkout with the version of the code in each file, and a changelog that has sections."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, path)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def replace(path, old, new):
    path.write_text(path.read_text().replace(old, new))


# The tag


def test_tag_of_the_version_has_no_problems(root):
    replace(root / "CHANGELOG.md", "0.1.0", __version__)
    assert find_problems(f"v{__version__}", root) == []


def test_tag_of_another_version_is_a_problem_of_each_file(root):
    problems = find_problems("v9.8.7", root)
    assert [problem.partition(":")[0] for problem in problems] == [
        *("shared/__init__.py", FILES[0], FILES[0], FILES[1], FILES[1]),
        "CHANGELOG.md",
    ]


@pytest.mark.parametrize("name", FILES)
def test_file_with_an_old_version_is_a_problem(root, name):
    replace(root / "CHANGELOG.md", "0.1.0", __version__)
    replace(root / name, __version__, "0.0.9")
    assert {problem.partition(":")[0] for problem in find_problems(f"v{__version__}", root)} == {name}


# The release notes


def test_notes_are_the_section_of_the_tag(root):
    assert find_notes("v0.1.0", root) == "### Added\n\n- A thing."
    assert find_notes("v0.0.1", root) == "- The first."


@pytest.mark.parametrize("section", ["## 0.2.0", "## Unreleased", "## 0.2.0 - 2026-02-01"])
def test_section_without_a_date_or_a_text_is_no_notes(root, section):
    replace(root / "CHANGELOG.md", "## Unreleased", section)
    assert find_notes("v0.2.0", root) is None


# The manifest for krew

SUMS = "".join(f"{number:064x}  {archive_of(*one)}\n" for number, one in enumerate(PLATFORMS))


def test_manifest_names_the_archive_of_each_platform_by_its_sum():
    manifest = yaml.safe_load(krew_manifest("v0.1.0", f"{SUMS}{'f' * 64}  ttl.txt\n"))
    assert (manifest["metadata"]["name"], manifest["spec"]["version"]) == ("ttl", "v0.1.0")
    assert len(manifest["spec"]["shortDescription"]) <= 50  # krew refuses longer ones in its index
    found = {
        (*one["selector"]["matchLabels"].values(),): (one["uri"].rpartition("/")[2], int(one["sha256"], 16))
        for one in manifest["spec"]["platforms"]
    }
    assert found == {one: (archive_of(*one), number) for number, one in enumerate(PLATFORMS)}


def test_manifest_without_the_sum_of_an_archive_is_an_error():
    with pytest.raises(ValueError, match=r"got none of kubectl-ttl_darwin_arm64.tar.gz"):
        krew_manifest("v0.1.0", "".join(SUMS.splitlines(keepends=True)[:-1]))


def test_archive_of_this_machine_has_the_name_that_the_manifest_expects():
    words = subprocess.check_output(["make", "-C", ROOT, "--dry-run", "binary"], text=True)
    (name,) = set(re.findall(r"dist/(kubectl-ttl_\S+)", words))
    assert name in {archive_of(*one) for one in PLATFORMS}


# The workflows


def test_each_action_is_pinned_by_the_hash_of_a_commit():
    uses = [step["uses"] for step in STEPS if "uses" in step]
    assert uses
    assert [one for one in uses if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}|\./\.github/actions/\w+", one)] == []


def test_each_make_target_of_the_workflows_exists():
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = [
        word
        for step in STEPS
        for words in re.findall(r"\bmake (?:-\S+ )*([a-z0-9 -]+)", step.get("run", ""))
        for word in words.split()
    ]
    assert called
    assert set(called) <= targets


def test_a_job_has_only_the_permissions_that_it_names():
    assert WORKFLOW["permissions"] == {}
    assert {name: job["permissions"] for name, job in WORKFLOW["jobs"].items()} == {
        "check": {"contents": "read"},
        "verify": {"contents": "read"},
        "image": {"contents": "read", "packages": "write", "id-token": "write"},
        "publish": {"contents": "write", "packages": "write", "id-token": "write"},
        "binary": {"contents": "write", "id-token": "write"},
        "krew": {"contents": "write", "id-token": "write"},
    }


def test_a_job_that_publishes_needs_the_one_before_it():
    assert {name: job.get("needs") for name, job in WORKFLOW["jobs"].items()} == {
        "check": None,
        "verify": None,
        "image": ["check", "verify"],
        "publish": "image",
        "binary": "publish",
        "krew": "binary",
    }


def test_no_script_of_a_workflow_contains_an_expression():
    assert [step["run"] for step in STEPS if "${{" in step.get("run", "")] == [], "pass values by the environment"


def test_smoke_tests_run_on_each_tested_kubernetes():
    jobs = WORKFLOWS["verify"]["jobs"]
    action = yaml.safe_load((ROOT / ".github/actions/servers/action.yml").read_text())
    others = jobs["kubernetes"]["strategy"]["matrix"]["kubernetes"]
    named = sorted(version.removesuffix(".x") for version in [action["inputs"]["kubernetes"]["default"], *others])
    assert named == [describe_version(version) for version in TESTED]


def test_versions_runs_the_smoke_tests_on_what_is_there_and_names_what_is_not(tmp_path):
    """.ci/versions: beside the usual version, one whose tests pass, one whose tests fail, and one without binaries."""
    own, passing, absent, failing = (
        describe_version(version) for version in (TESTED[2], TESTED[0], TESTED[1], TESTED[3])
    )
    script = "#!/bin/sh\necho Kubernetes v{}.9\n"
    for folder, version in ((".", own), (passing, passing), (failing, failing)):
        _program(tmp_path / folder / "kube-apiserver", script.format(version))
    _program(
        tmp_path / "path/make",
        f'#!/bin/sh\necho "made $1 on $KUBEBUILDER_ASSETS"\n[ "${{KUBEBUILDER_ASSETS##*/}}" != {failing} ]\n',
    )
    environment = {
        **os.environ,
        "KUBEBUILDER_ASSETS": str(tmp_path),
        "PATH": f"{tmp_path / 'path'}:{os.environ['PATH']}",
        "VENV": sys.prefix,
    }
    environment.pop("SETUP", None)
    done = subprocess.run([ROOT / ".ci/versions"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    made = [line for line in done.stdout.splitlines() if line.startswith("made")]
    assert made == [f"made smoke on {tmp_path / version}" for version in (passing, failing)]
    assert f"the smoke tests on Kubernetes {absent} are skipped" in done.stderr
    assert f"the smoke tests failed on Kubernetes {failing}" in done.stderr


def _program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
