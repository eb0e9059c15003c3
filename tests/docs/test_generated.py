"""What is generated from the code is as the code is now: docs/reference, the man page, the completion, the chart."""

from itertools import zip_longest
from pathlib import Path

from tests.chart import digests
from tests.docs.problems import expect_none, place
from tests.reference.manpage import FOLDER as MAN
from tests.reference.pages import FOLDER, render_all

FILES = render_all()


def first_difference(one: str, other: str) -> int:
    """The number of the first line that differs."""
    lines = zip_longest(one.splitlines(), other.splitlines())
    return next((number for number, (first, second) in enumerate(lines, 1) if first != second), 1)


def test_each_generated_file_is_as_the_code_is():
    problems = []
    for path, text in FILES.items():
        committed = path.read_text() if path.exists() else ""
        if committed != text:
            problems.append(f"{place(path, first_difference(committed, text))}: it is stale: run `make docs`")
    expect_none(problems)


def test_folders_of_generated_files_have_no_other_file():
    committed: set[Path] = {path for folder in (FOLDER, MAN) for path in folder.rglob("*") if path.is_file()}
    expect_none(f"{place(path)}: no code makes it any more: delete it" for path in sorted(committed - {*FILES}))


def test_chart_and_what_it_is_made_from_are_as_make_chart_left_them():
    """By digests: tests/chart/test_chart_files.py makes the chart again, and compares each file."""
    expect_none(digests.find_problems())
