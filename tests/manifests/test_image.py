"""The image: what it is built from, and what keeps that current."""

import os
import re
import subprocess
import sys

import pytest
import yaml

from tests.builders import ROOT

DOCKERFILES = sorted(path for path in ROOT.glob("**/*Dockerfile*") if ".venv" not in path.parts)
FROM = re.compile(r"^FROM\s+(?:--\S+\s+)*(?P<image>\S+)(?:\s+AS\s+(?P<stage>\S+))?", re.IGNORECASE | re.MULTILINE)
PINNED = re.compile(r"\S+:[0-9]+\.[0-9]+\.[0-9]+\S*@sha256:[0-9a-f]{64}")
"""A version to read and to be kept current by, and the digest that counts."""


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_base_image_has_a_version_and_a_digest(path):
    stages = list(FROM.finditer(path.read_text()))
    assert stages

    names = {stage["stage"] for stage in stages}
    bases = {stage["image"] for stage in stages} - names
    assert [base for base in bases if not PINNED.fullmatch(base)] == []
    assert len(bases) == 1, "the Python that compiles is the Python that runs"


def test_dependabot_keeps_every_pin_current():
    found = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())

    assert found["version"] == 2
    assert {one["package-ecosystem"] for one in found["updates"]} == {"docker", "pip", "github-actions"}
    assert {path.parent for path in DOCKERFILES} == {ROOT}
    assert {one["directory"] for one in found["updates"]} == {"/"}


# The development servers

WITHOUT_DEVSERVER = """
import sys
for absent in ("shared.devserver", "jsonpatch", "jsonpointer"):
    sys.modules[absent] = None
"""
IMPORT_ALL = """
import asyncio, importlib, pathlib
paths = [path for path in pathlib.Path("shared").rglob("*.py") if "devserver" not in path.parts]
for path in paths:
    importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
async def load():
    for name in ("schedule", "timers", "expire", "sweep", "deadletter"):
        importlib.import_module(f"functions.{name}")
asyncio.run(load())
"""
MAIN = "from shared.cli.main import main; main()"


def ended(tmp_path, code, *words):
    """What a program prints, and its exit code, without the development servers."""
    environment = {**os.environ, "K_SINK": "http://sink", "TTL_TIMERS": f"sqlite:{tmp_path}/timers.db"}
    command = [sys.executable, "-c", WITHOUT_DEVSERVER + code, *words]
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return process.returncode, process.stdout + process.stderr


def test_image_has_no_development_servers():
    assert "shared/devserver" in (ROOT / ".dockerignore").read_text().splitlines()
    assert "jsonpatch" not in (ROOT / "requirements.txt").read_text()


def test_image_has_what_sends_traces():
    assert "\nopentelemetry-sdk==" in (ROOT / "requirements.txt").read_text()


def test_every_other_module_imports_without_the_development_servers(tmp_path):
    assert ended(tmp_path, IMPORT_ALL) == (0, "")


def test_help_works_without_the_development_servers(tmp_path):
    code, text = ended(tmp_path, MAIN, "--help")
    assert code == 0
    assert "demo" in text


def test_demo_without_the_development_servers_says_how_to_install_it(tmp_path):
    code, text = ended(tmp_path, MAIN, "demo")
    assert code == 1
    assert text.startswith("Error: the demo is not installed: in a clone, run `make demo`")
