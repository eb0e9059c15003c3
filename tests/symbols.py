"""The index of ARCHITECTURE.md: each name is in the file that its link names. `make index` follows what has moved."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from os.path import commonpath
from pathlib import Path

from tests.builders import ROOT

INDEX = ROOT / "ARCHITECTURE.md"
LINK = re.compile(r"\[`([A-Za-z_]+(?:\.[A-Za-z_]+)?)`\]\(((?:shared|functions)/[a-z_/]+\.py)\)")


@cache
def definitions() -> dict[str, list[str]]:
    """The files that define each function, class, constant, and `Class.member`."""
    found: dict[str, list[str]] = {}
    for folder in ("functions", "shared"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in _names(ast.parse(path.read_text()).body):
                found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return found


def find_problem(name: str, path: str) -> str:
    """What is wrong with a link of the index; empty where it is right."""
    files = definitions().get(name, [])
    if path in files:
        return ""
    return f"{name}: expected one of {', '.join(files) or 'no file: nothing has this name'}; got {path}"


def relink(text: str) -> str:
    """The text with each link to the file that has the name now: of several files, the one most like the old path."""

    def follow(link: re.Match[str]) -> str:
        files = definitions().get(link[1], [link[2]])
        return f"[`{link[1]}`]({max(files, key=lambda file: _likeness(file, link[2]))})"

    return LINK.sub(follow, text)


def _likeness(file: str, old: str) -> tuple[bool, bool, int]:
    """Whether a file is the old one, or has its name, and how much of both paths is the same."""
    return file == old, Path(file).name == Path(old).name, len(commonpath([file, old.removesuffix(".py")]))


def _names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef) and not prefix:
            yield from _names(node.body, f"{node.name}.")
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


if __name__ == "__main__":
    Path(INDEX).write_text(relink(INDEX.read_text()))
