"""The pages of docs/reference follow the rules of the language, and their texts are complete."""

import re

import pytest

from shared.core.decision.facts import Reason
from shared.core.usage.unused_reasons import UnusedReason
from shared.ports import EventReason, HandlingReason, Verdict
from shared.safeguards.safeguards import Safeguard
from tests.builders import ROOT
from tests.docs.problems import expect_none, place
from tests.reference.pages import FOLDER
from tests.reference.texts import members
from tests.snippets import line_of

PAGES = {path: path.read_text() for path in sorted(FOLDER.glob("*.md"))}
WORDS = [line.partition("->")[0] for line in (ROOT / ".codespell-dictionary.txt").read_text().splitlines()]
AVOIDED = re.compile(rf"(?<![-`])\b({'|'.join(WORDS)}|of its own)\b", re.IGNORECASE)
SENTENCES_MAX = 3
CORRECT = "correct the code or the template that says it, and run `make docs`"


def test_each_page_begins_with_a_title_and_a_short_paragraph():
    problems = []
    for path, text in PAGES.items():
        _, title, first, *_ = text.split("\n\n")
        if not title.startswith("# "):
            problems.append(f"{place(path)}: expected a title in place of `{title[:40]}`: {CORRECT}")
        if len(re.findall(r"[.](?= |$)", first)) > SENTENCES_MAX:
            problems.append(f"{place(path)}: its first paragraph has more than {SENTENCES_MAX} sentences: {CORRECT}")
    expect_none(problems)


def test_pages_have_none_of_the_avoided_words():
    expect_none(
        f"{place(path, line_of(text, found.start()))}: {found[0]}: {CORRECT}"
        for path, text in PAGES.items()
        for found in AVOIDED.finditer(text)
    )


def test_each_row_of_a_table_has_as_many_cells_as_its_titles():
    problems = []
    for path, text in PAGES.items():
        expected = 0
        for number, line in enumerate(text.splitlines(), 1):
            cells = len(re.findall(r"(?<!\\)[|]", line)) if line.startswith("| ") else 0
            if expected and cells and cells != expected:
                problems.append(f"{place(path, number)}: {cells - 1} cells, expected {expected - 1}: {CORRECT}")
            expected = cells and (expected or cells)
    expect_none(problems)


@pytest.mark.parametrize("enum", [Reason, UnusedReason, Safeguard, HandlingReason, EventReason, Verdict])
def test_each_member_has_a_description(enum):
    expected = 1 if enum is Verdict else 2

    assert [member for member, texts in members(enum) if len(texts) != expected] == []
