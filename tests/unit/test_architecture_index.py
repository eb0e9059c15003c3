"""ARCHITECTURE.md: each name of its index is in the linked file, and its table has every package."""

import re

import pytest

from tests.builders import ROOT
from tests.symbols import INDEX, LINK, find_problem, relink

TEXT = INDEX.read_text()
LINKS = sorted({*LINK.findall(TEXT)})


@pytest.mark.parametrize(("name", "path"), LINKS)
def test_each_name_is_in_the_file_of_its_link(name, path):
    assert not find_problem(name, path), "run `make index` if it has moved"


def test_index_is_not_empty():
    assert len(LINKS) > 40


def test_every_package_is_in_the_table():
    packages = {path.parent.name for path in (ROOT / "shared").glob("*/__init__.py")}
    assert packages <= {*re.findall(r"\(shared/(\w+)\)", TEXT)}


def test_relink_follows_a_name_that_has_moved():
    assert relink("[`finish_of`](shared/old.py)") == "[`finish_of`](shared/core/finish.py)"


def test_relink_prefers_the_file_most_like_the_old_one():
    moved = relink("[`as_json`](shared/cli/report/object_report.py)")
    assert moved == "[`as_json`](shared/cli/objects/object_report.py)"


def test_relink_keeps_a_link_that_is_right():
    assert relink(TEXT) == TEXT


def test_unknown_name_is_reported():
    assert "nothing has this name" in find_problem("no_such_name", "shared/errors.py")
