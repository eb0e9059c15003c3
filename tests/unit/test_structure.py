"""The source tree: files short enough to read at once, and one class and one limit for each name."""

import ast
import re
from collections import Counter

from tests.builders import ROOT

LINES_MAX = 250
LIMIT = re.compile("(MAX|MIN|SECONDS|BYTES|CONCURRENCY)$")
FILES = sorted(path for folder in ("functions", "shared") for path in (ROOT / folder).rglob("*.py"))


def test_no_file_has_more_lines_than_the_limit():
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: count for name, count in lines.items() if count > LINES_MAX} == {}


def test_no_two_public_classes_have_one_name():
    classes = Counter(
        node.name
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_no_two_public_limits_have_one_name():
    limits = Counter(
        target.id
        for path in FILES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and LIMIT.search(target.id) and not target.id.startswith("_")
    )
    assert [name for name, count in limits.items() if count > 1] == []
