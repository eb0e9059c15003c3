"""The fenced blocks of the pages in `docs`: their commands, and their YAML.

What a page must follow, so that its blocks can be tested:

- ```console: each line that begins with `$ ` is a command, and a line after `\\` continues it. The other lines are its
  output. `…` stands for text that was left out.
- ```sh: each line is a command.
- ```yaml: the first line is a comment with the path of the file, such as `# policy.yaml`.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.builders import ROOT

DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial.md"
PAGES = (TUTORIAL, *sorted((DOCS / "how-to").glob("*.md")))

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`([^`]+)`")
_INDENTED = re.compile(r"^ {4,}(\S.*)$", re.MULTILINE)
_PROGRAM = re.compile(r"(\$ )?(kubectl ttl|\S*ttl-after-finished) ")
_SEPARATORS = {"|", "||", "&&", ";", "&", ">", ">>", "<"}
_PROGRAMS = (("ttl-after-finished",), ("kubectl", "ttl"), (".venv/bin/ttl-after-finished",))


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block.

    Attributes:
        line: Of its first line of text.
    """

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """The page and the line."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str:
        """The name that its first line gives; empty where it gives none."""
        first = re.match(r"# (\S+\.yaml)\n", self.text)
        return first[1] if first else ""


@dataclass(slots=True)
class Command:
    """One line that a reader types, and what the page shows of its output."""

    block: Block
    text: str
    output: list[str] = field(default_factory=list)

    @property
    def parts(self) -> list[list[str]]:
        """The words of each program that the line starts."""
        return _split(self.text)

    @property
    def own(self) -> Iterator[list[str]]:
        """The arguments of each call of this project's program."""
        return _own(self.parts)


def read_blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text()
    return [Block(page, line_of(text, found.start(2)), found[1], found[2]) for found in FENCE.finditer(text)]


def read_commands(blocks: Sequence[Block]) -> list[Command]:
    """The commands of ```console and ```sh blocks, in order."""
    return [command for block in blocks for command in _commands(block)]


def blank_out(pattern: re.Pattern[str], text: str) -> str:
    """The text without what matches; each line keeps its number."""
    return pattern.sub(lambda found: "\n" * found[0].count("\n"), text)


def line_of(text: str, position: int) -> int:
    """The number of the line of a position."""
    return text.count("\n", 0, position) + 1


@dataclass(frozen=True, slots=True)
class Mention:
    """A command in the text of a page.

    Attributes:
        words: The arguments of this project's program.
        whole: Whether a reader can type it: it is a line that is indented as code. Between backticks a text may name a
            command without its arguments.
    """

    line: int
    words: list[str]
    whole: bool


def read_mentions(page: Path) -> Iterator[Mention]:
    """The commands between backticks, and in lines that are indented as code.

    A program without arguments, and a command in which something is left out, are no commands to try.
    """
    prose = blank_out(FENCE, page.read_text())
    for pattern, whole in ((_QUOTED, False), (_INDENTED, True)):
        for found in pattern.finditer(prose):
            text = " ".join(found[1].split())
            if _PROGRAM.match(text) and "…" not in text and "..." not in text:
                for words in _own(_split(text.removeprefix("$ "))):
                    if words:
                        yield Mention(line_of(prose, found.start(1)), words, whole)


def write_files(blocks: Sequence[Block], folder: Path) -> None:
    """Save the YAML blocks as a reader does, under the names that they give."""
    for block in blocks:
        if block.language == "yaml" and block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)


def _split(text: str) -> list[list[str]]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word in _SEPARATORS:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _own(parts: Sequence[list[str]]) -> Iterator[list[str]]:
    for words in parts:
        program = next((one for one in _PROGRAMS if tuple(words[: len(one)]) == one), None)
        if program is not None:
            yield words[len(program) :]


def _commands(block: Block) -> Iterator[Command]:
    if block.language not in ("console", "sh"):
        return
    command: Command | None = None
    for line in block.text.splitlines():
        if command is not None and command.text.endswith("\\"):
            command.text = command.text[:-1] + line.strip()
        elif block.language == "sh" or line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(block, line.removeprefix("$ "))
        elif command is not None:
            command.output.append(line)
    if command is not None:
        yield command
