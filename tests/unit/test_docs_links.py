"""Links between the pages of this repository: each target is an existing file, and an existing heading of it."""

import re
from pathlib import Path

import pytest

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "knative/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
_FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?([^\s()<>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$", re.MULTILINE)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*$", re.MULTILINE)
_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading: no markup, lower case, no punctuation, a hyphen for each space."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    text = re.sub(r"(\*\*|__)(.+?)\1", r"\2", text)
    text = re.sub(r"(?<!\w)([*_])(.+?)\1(?!\w)", r"\2", text)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """All anchors of a page; a heading that comes again gets a number."""
    found: set[str] = {*_ANCHOR.findall(text)}
    counts: dict[str, int] = {}
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        name = slug(heading)
        count = counts.get(name, 0)
        counts[name] = count + 1
        found.add(f"{name}-{count}" if count else name)
    return found


def links(text: str) -> list[str]:
    """The targets of all links, those in code aside."""
    prose = _FENCE.sub("", text)
    definitions = _DEFINITION.findall(prose)
    # A link may have code as its text, so code becomes a word before links are looked for.
    return _LINK.findall(_CODE.sub("code", prose)) + definitions


def problem_of(page: Path, link: str) -> str:
    """The problem of a link; empty if the link resolves or leaves the repository."""
    if re.match(r"[a-z][a-z0-9+.-]*:", link):
        return ""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return f"{link}: expected a file of the repository"
    if anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text())):
        return f"{link}: expected a heading with the anchor #{anchor}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page):
    problems = [problem for link in links(page.read_text()) if (problem := problem_of(page, link))]
    assert not problems, f"{page.relative_to(ROOT)}: {'; '.join(problems)}"


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Stop it now", "stop-it-now"),
        ("What is `TTL_KINDS`, or `--kinds`?", "what-is-ttl_kinds-or---kinds"),
        ("A **budget** & a _breaker_", "a-budget--a-breaker"),
        ("See [the list](list.md)", "see-the-list"),
        ("1. First: don't", "1-first-dont"),
    ],
)
def test_slug_follows_the_rules_of_github(heading, expected):
    assert slug(heading) == expected


def test_links_are_found_outside_of_code_only():
    text = "[a](b.md) `[c](d.md)` [`e`](f.md#g) ![h](i.png)\n```sh\n[j](k.md)\n```\n[l]: m.md\n"
    assert links(text) == ["b.md", "f.md#g", "i.png", "m.md"]


def test_repeated_headings_get_a_number():
    assert anchors("# One\n## One\n```\n# Two\n```\n") == {"one", "one-1"}


@pytest.mark.parametrize("link", ["missing.md", "README.md#no-such-heading", "../../etc/passwd"])
def test_broken_link_is_reported(link):
    assert problem_of(ROOT / "README.md", link)
