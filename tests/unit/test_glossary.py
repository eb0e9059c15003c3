"""docs/glossary.md: every term once, in the order of the alphabet."""

import re

from tests.builders import ROOT

TEXT = (ROOT / "docs/glossary.md").read_text()
TERMS = re.findall(r"^\*\*(.+?)\*\*:", TEXT, re.MULTILINE)


def test_terms_are_in_alphabetical_order():
    assert len(TERMS) > 50
    assert [term.lower() for term in TERMS] == sorted(term.lower() for term in TERMS)


def test_each_paragraph_defines_one_term():
    _, _, *paragraphs = TEXT.strip().split("\n\n")
    assert all(paragraph.startswith("**") for paragraph in paragraphs)
    names = [name.strip() for term in TERMS for name in re.sub(r"\(.*?\)", "", term).split(",")]
    assert len({*names}) == len(names)
