"""Links between the pages of this repository: each target is an existing file, and an existing heading of it."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.builders import ROOT
from tests.docs.problems import PAGES, expect_none, place
from tests.snippets import blank_out, line_of

_FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?([^\s()<>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$", re.MULTILINE)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*$", re.MULTILINE)
_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
_PYTHON = re.compile(r"(?<![\w/.])(?:functions|shared|tests|examples)/[\w/]+\.py\b")

EVERY_SORT = """# One
## A **budget** & `TTL_KINDS`, or a _breaker_
## One
[a](missing.md) [b](README.md#no-such-heading)
`[code](missing.md)` [`e`](../../etc/passwd)
```sh
[fenced](missing.md)
# Two
```
[c]: missing.png
[right](#one-1) [right](#a-budget--ttl_kinds-or-a-breaker) [right](README.md) [elsewhere](https://example.com)
See `tests/test_missing.py`.
"""
"""The lines 4, 5, 10 and 12 are wrong."""


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading: no markup, lower case, no punctuation, a hyphen for each space."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    text = re.sub(r"(\*\*|__)(.+?)\1", r"\2", text)
    text = re.sub(r"(?<!\w)([*_])(.+?)\1(?!\w)", r"\2", text)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


@cache
def anchors(text: str) -> frozenset[str]:
    """All anchors of a page; a heading that comes again gets a number."""
    found: set[str] = {*_ANCHOR.findall(text)}
    counts: dict[str, int] = {}
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        name = slug(heading)
        count = counts.get(name, 0)
        counts[name] = count + 1
        found.add(f"{name}-{count}" if count else name)
    return frozenset(found)


def links(text: str) -> Iterator[tuple[int, str]]:
    """The line and the target of each link, those in code aside."""
    prose = blank_out(_FENCE, text)
    # A link may have code as its text, so code becomes a word before links are looked for.
    words = _CODE.sub(lambda found: "code" + "\n" * found[0].count("\n"), prose)
    for pattern, searched in ((_LINK, words), (_DEFINITION, prose)):
        for found in pattern.finditer(searched):
            yield line_of(searched, found.start(1)), found[1]


def problem_of(page: Path, text: str, link: str) -> str:
    """The problem of a link; empty if the link resolves or leaves the repository."""
    if re.match(r"[a-z][a-z0-9+.-]*:", link):
        return ""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return f"{link}: no such file in the repository: correct the link"
    if anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text() if path else text)):
        return f"{link}: no heading there has this anchor: correct the link"
    return ""


def find_problems(page: Path, text: str) -> Iterator[str]:
    for line, link in links(text):
        if problem := problem_of(page, text, link):
            yield f"{place(page, line)}: {problem}"
    for found in _PYTHON.finditer(text):
        if not (ROOT / found[0]).exists():
            yield f"{place(page, line_of(text, found.start()))}: {found[0]}: no such file: name the one that it is now"


def test_every_link_and_every_named_python_file_of_the_pages_exists():
    expect_none(problem for page in PAGES for problem in find_problems(page, page.read_text()))


def test_broken_link_is_found_with_its_line():
    found = [problem.split(": ")[0] for problem in find_problems(ROOT / "README.md", EVERY_SORT)]
    assert found == [f"README.md:{line}" for line in (4, 4, 5, 10, 12)]
