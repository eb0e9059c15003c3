"""docs/glossary.md: every term once, in the order of the alphabet."""

import re
from itertools import pairwise

from tests.builders import ROOT
from tests.docs.problems import expect_none, place
from tests.snippets import line_of

PAGE = ROOT / "docs/glossary.md"
TEXT = PAGE.read_text()
TERMS = [(line_of(TEXT, found.start()), found[1]) for found in re.finditer(r"^\*\*(.+?)\*\*:", TEXT, re.MULTILINE)]


def test_terms_are_in_alphabetical_order():
    assert len(TERMS) > 50
    expect_none(
        f"{place(PAGE, line)}: {term}: move it before {before}, in the order of the alphabet"
        for (_, before), (line, term) in pairwise(TERMS)
        if before.lower() > term.lower()
    )


def test_each_paragraph_defines_one_term():
    _, _, *paragraphs = TEXT.strip().split("\n\n")
    problems = [
        f"{place(PAGE)}: `{text[:40]}`: begin the paragraph with **the term**:"
        for text in paragraphs
        if not text.startswith("**")
    ]
    defined: set[str] = set()
    for line, term in TERMS:
        for name in re.sub(r"\(.*?\)", "", term).split(","):
            if name.strip() in defined:
                problems.append(f"{place(PAGE, line)}: {name.strip()} is defined twice: join both")
            defined.add(name.strip())
    expect_none(problems)
