"""The image: what it is built from, and what keeps that current."""

import re

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
