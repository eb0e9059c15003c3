"""What a tag must agree with, and what its release says."""

import re
from pathlib import Path

import yaml

from shared import __version__
from tests.builders import ROOT

_SECTION = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
_DATED = re.compile(r"(?P<version>\d+\.\d+\.\d+) - \d{4}-\d{2}-\d{2}")
_COMPONENT = Path("knative", "components", "release", "kustomization.yaml")
_CHART = Path("knative", "chart", "Chart.yaml")


def find_problems(tag: str, root: Path = ROOT, code_version: str = __version__) -> list[str]:
    """What disagrees with a tag such as `v0.1.0`; a release needs an empty list.

    Args:
        tag: The name of the tag.
        root: The checkout.
        code_version: What `--version` prints.
    """
    release = yaml.safe_load((root / _COMPONENT).read_text())
    chart = yaml.safe_load((root / _CHART).read_text())
    versions = {
        "shared/__init__.py": code_version,
        f"{_COMPONENT}: newTag": release["images"][0]["newTag"],
        f"{_COMPONENT}: app.kubernetes.io/version": release["labels"][0]["pairs"]["app.kubernetes.io/version"],
        f"{_CHART}: version": chart["version"],
        f"{_CHART}: appVersion": chart["appVersion"],
    }
    problems = [
        f"{name}: expected the version of {tag}, got {got}" for name, got in versions.items() if f"v{got}" != tag
    ]
    if find_notes(tag, root) is None:
        problems.append(f"CHANGELOG.md: expected a section '## {tag.removeprefix('v')} - YYYY-MM-DD' that is not empty")
    return problems


def find_notes(tag: str, root: Path = ROOT) -> str | None:
    """The text of a tag's section in CHANGELOG.md; None if there is no such section, or if it is empty."""
    text = (root / "CHANGELOG.md").read_text()
    sections = list(_SECTION.finditer(text))
    ends = [one.start() for one in sections[1:]] + [len(text)]
    for section, end in zip(sections, ends, strict=True):
        dated = _DATED.fullmatch(section["title"])
        if dated and f"v{dated['version']}" == tag:
            return text[section.end() : end].strip() or None
    return None
