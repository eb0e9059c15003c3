"""The source tree: files short enough to read at once, and one class and one limit for each name."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.builders import ROOT
from tests.docs.problems import expect_none, place

LINES_MAX = 300
"""Of code in a file."""
LIMIT = re.compile("(MAX|MIN|SECONDS|BYTES|CONCURRENCY)$")
TREES = {
    path: ast.parse(path.read_text())
    for folder in ("functions", "shared")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}

Named = Iterable[tuple[Path, int, str]]


def lines_of_code(text: str) -> int:
    """The number of lines with code: without docstrings, comments and blank lines."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code |= {*range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return len(code)


def classes() -> Iterator[tuple[Path, int, str]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield path, node.lineno, node.name


def limits() -> Iterator[tuple[Path, int, str]]:
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name) and LIMIT.search(target.id):
                        yield path, node.lineno, target.id


def find_repeated(named: Named, what: str) -> Iterator[str]:
    first: dict[str, str] = {}
    for path, line, name in named:
        here = place(path, line)
        if not name.startswith("_") and first.setdefault(name, here) != here:
            yield f"{here}: {name} is also a {what} at {first[name]}: rename one of them"


def test_no_file_has_more_lines_of_code_than_the_limit():
    counts = {path: lines_of_code(path.read_text()) for path in TREES}
    expect_none(
        f"{place(path)}: {count} lines of code, more than {LINES_MAX}: make two files of it"
        for path, count in counts.items()
        if count > LINES_MAX
    )


def test_line_counts_if_it_has_code():
    text = '"""A file.\n\nOf two."""\n\n# a comment\na = (  # one\n    """two\n\n    four"""\n)\n"""Of a."""\n'
    assert lines_of_code(text) == 5


def test_no_two_public_classes_have_one_name():
    expect_none(find_repeated(classes(), "class"))


def test_no_two_public_limits_have_one_name():
    expect_none(find_repeated(limits(), "limit"))
