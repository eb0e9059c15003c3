"""ARCHITECTURE.md: each name of its index is in the linked file, and its table has every package."""

import re

from tests.builders import ROOT
from tests.docs.problems import expect_none, place
from tests.snippets import line_of
from tests.symbols import INDEX, LINK, find_problem, relink

TEXT = INDEX.read_text()


def test_each_name_of_the_index_is_in_the_file_of_its_link():
    found = list(LINK.finditer(TEXT))
    assert len({link[0] for link in found}) > 40
    expect_none(
        f"{place(INDEX, line_of(TEXT, link.start()))}: {problem}: run `make index` if it has moved"
        for link in found
        if (problem := find_problem(link[1], link[2]))
    )


def test_every_package_is_in_the_table():
    packages = {path.parent.name for path in (ROOT / "shared").glob("*/__init__.py")}
    listed = {*re.findall(r"\(shared/(\w+)\)", TEXT)}
    expect_none(f"{place(INDEX)}: shared/{name} is not in the table: add a row" for name in sorted(packages - listed))


def test_make_index_follows_names_and_keeps_right_links():
    right = "[`decide`](shared/core/decision/decide.py)"
    assert relink(right) == right
    assert relink("[`finish_of`](shared/old.py)") == "[`finish_of`](shared/core/decision/finish.py)"
    moved = relink("[`as_json`](shared/cli/report/object_report.py)")  # of several files, the one most like the old
    assert moved == "[`as_json`](shared/cli/objects/object_report.py)"
    assert "nothing has this name" in find_problem("no_such_name", "shared/errors.py")
