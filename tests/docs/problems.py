"""What the checks of the pages have in common: which pages there are, and one list of all that is wrong."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.builders import ROOT

PAGES = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "knative/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]


def place(path: Path, line: int | None = None) -> str:
    """`docs/tutorial.md:12`."""
    name = str(path.relative_to(ROOT))
    return name if line is None else f"{name}:{line}"


def expect_none(problems: Iterable[str]) -> None:
    """Fail with all problems, one a line: `path:line: what is wrong, and what to do`."""
    if found := list(problems):
        pytest.fail("\n".join([f"{len(found)} to correct", *found]), pytrace=False)
