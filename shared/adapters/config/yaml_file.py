"""Read hand-written YAML into a model; an error names the file, the line and the expected value.

A text is measured before it is parsed.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shared.core.values.objects import quote
from shared.errors import TtlError

SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader of the C library, if it is installed: ten times as fast."""


def describe_error(error: yaml.YAMLError | UnicodeDecodeError, line: int = 1) -> str:
    """Describe why a text is not YAML: `invalid YAML at line 3: did not find expected ',' or ']'`.

    Args:
        error: The error of the parser.
        line: The line of the file at which the text begins.
    """
    mark = getattr(error, "problem_mark", None)
    place = f" at line {mark.line + line}" if mark else ""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or " ".join(str(error).split())
    return f"invalid YAML{place}: {problem}"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a YAML text.

    Attributes:
        levels: The most levels of nested lists and mappings.
        values: The values, with aliases expanded.
        line: The line at which the measurement ended.
    """

    levels: int
    values: int
    line: int


def measure(text: str, *, levels_max: int, values_max: int) -> Size:
    """Measure a text by its events, without recursion, until it ends or exceeds a limit.

    Raises:
        yaml.YAMLError: The text is not YAML.
    """
    values, levels, line = 0, 0, 1
    sizes: dict[str | None, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, values))
            levels = max(levels, len(open_nodes))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            sizes[anchor] = values - before
        if isinstance(event, yaml.AliasEvent):  # an alias within itself counts once, and its reader rejects it
            values += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.NodeEvent):
            values += 1
        line = event.start_mark.line + 1 if event.start_mark else line
        if levels > levels_max or values > values_max:
            break
    return Size(levels, values, line)


ERRORS_SHOWN_MAX = 10
"""Maximum number of errors shown for one file; fix these to see the rest."""

SIZE_MAX = 1_048_576
"""Maximum size of a file, in characters: the size limit of a ConfigMap."""

YAML_DEPTH_MAX = 100
"""Maximum nesting of lists and mappings: the C library that reads YAML overflows its stack at tens of thousands."""

YAML_VALUES_MAX = 100_000
"""Maximum number of values with aliases expanded: nine levels of nine aliases each are half a billion values."""

ModelT = TypeVar("ModelT", bound=BaseModel)


class Loader(SafeLoader):  # type: ignore[misc]
    """YAML 1.1, plus the numbers that JSON and YAML 1.2 accept and YAML 1.1 does not: 1e-05."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)

_PORTABLE = {
    "bool": re.compile("true|True|TRUE|false|False|FALSE"),
    "int": re.compile("[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+"),
    "float": re.compile("[^_:]+"),
    "timestamp": re.compile("(?!)"),
    "str": re.compile("(?![-+]?[0-9]+$|0o[0-7]+$).*", re.DOTALL),
}
"""Plain (unquoted) scalars with one meaning in YAML 1.1 and 1.2, by their YAML 1.1 type."""


class FileError(TtlError):
    """A file is invalid; each line of the message names the file, the line, the field and the reason."""


def read_text(path: Path) -> str:
    """Read a text file.

    Raises:
        FileError: The file cannot be read.
    """
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileError(f"{path}: expected a text file, but it cannot be read: {why}") from None


def read_model(path: Path, model: type[ModelT], *, context: object = None) -> ModelT:
    """Read a file as a model; `context` is passed to the model's validators.

    Raises:
        FileError: The file cannot be read, is not one YAML document, repeats a key, has a value that YAML 1.1 and 1.2
            read differently, or does not match the model.
    """
    return parse_model(read_text(path), model, name=path.name, context=context)


def parse_model(
    text: str,
    model: type[ModelT],
    *,
    name: str,
    refine: Callable[[ModelT], ModelT] = lambda model: model,
    context: object = None,
) -> ModelT:
    """Parse a text as a model.

    Args:
        text: YAML.
        model: The expected model.
        name: The file name in errors.
        refine: Converts the validated model; raises pydantic's ValidationError, with locations, if it cannot.
        context: Passed to the model's validators.

    Raises:
        FileError: The text is not one YAML document, repeats a key, has a value that YAML 1.1 and 1.2 read
            differently, or does not match the model.
    """
    if len(text) > SIZE_MAX:
        raise FileError(f"{name}: expected at most {SIZE_MAX} characters, got {len(text)}")
    try:
        size = measure(text, levels_max=YAML_DEPTH_MAX, values_max=YAML_VALUES_MAX)
        if size.levels > YAML_DEPTH_MAX:
            raise FileError(
                f"{name}:{size.line}: expected at most {YAML_DEPTH_MAX} levels of nested lists and mappings"
            )
        if size.values > YAML_VALUES_MAX:
            raise FileError(f"{name}: expected at most {YAML_VALUES_MAX} values, with aliases expanded")
        loader = Loader(text)
        node = loader.get_single_node()
        _raise_errors(sorted(_find_pitfalls(node)), name)
        document = loader.construct_document(node) if node else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise FileError(f"{place}: expected one YAML document: {problem}") from None
    except (ValueError, RecursionError) as error:  # an invalid date, or brackets nested too deeply
        raise FileError(f"{name}: expected YAML: {error}") from None
    try:
        read = refine(model.model_validate(document, context=context))
    except ValidationError as error:
        errors = list(_without_consequences(error.errors(include_url=False)))
        _raise_errors([(_line_of(node, one["loc"]), describe_problem(one)) for one in errors], name)
        raise
    return read


def _raise_errors(errors: Sequence[tuple[int, str]], name: str) -> None:
    if errors:
        lines = [f"{name}:{line}: {message}" for line, message in errors[:ERRORS_SHOWN_MAX]]
        more = [f"{name}: and {len(errors) - ERRORS_SHOWN_MAX} more"] if len(errors) > ERRORS_SHOWN_MAX else []
        raise FileError("\n".join(lines + more)) from None


def _find_pitfalls(node: Any) -> Iterator[tuple[int, str]]:
    """Find valid YAML that is probably a mistake: repeated keys and ambiguous scalars, each with its line and error."""
    pending, seen = [node], set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:  # an alias
            continue
        seen.add(id(one))
        if isinstance(one, yaml.ScalarNode):
            yield from _ambiguous(one)
        elif isinstance(one, yaml.MappingNode):
            yield from _repeated(one)
            pending.extend(part for entry in one.value for part in entry)
        else:
            pending.extend(one.value)


def _repeated(node: Any) -> Iterator[tuple[int, str]]:
    """Find repeated keys: YAML silently uses the last one."""
    keys: set[str] = set()
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
        if key.value in keys:
            yield key.start_mark.line + 1, f"{key.value}: expected it once, got it twice"
        keys.add(key.value)


def _ambiguous(node: Any) -> Iterator[tuple[int, str]]:
    """Find plain scalars that YAML 1.1 and 1.2 read differently: octal 010, sexagesimal 1:30, yes and no."""
    portable = None if node.style else _PORTABLE.get(node.tag.rpartition(":")[2])
    if portable and not portable.fullmatch(node.value):
        expected = "expected quotes around it, or a plain number, true or false"
        yield node.start_mark.line + 1, f"{quote(node.value)}: {expected}: YAML 1.1 and 1.2 read it differently"


def _line_of(node: Any, location: Sequence[str | int]) -> int:
    """Return the line of a field, counted from 1; for a missing field, the line of its parent."""
    line = node.start_mark.line if node else 0
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found:
                line, node = found[0].start_mark.line, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line
    return int(line) + 1


def _without_consequences(errors: Sequence[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Leave out "too short" errors of lists with invalid items: the invalid items make such a list too short."""
    for one in errors:
        depth = len(one["loc"])
        has_invalid_item = any(len(other["loc"]) > depth and other["loc"][:depth] == one["loc"] for other in errors)
        if one["type"] != "too_short" or not has_invalid_item:
            yield one


def describe_problem(error: ErrorDetails) -> str:
    """Describe a problem of a model: `ttl.fields.0.unit: expected 'seconds' or 'duration', got 'hours'`."""
    where = ".".join(str(part) for part in error["loc"]) or "the document"
    context = error.get("ctx") or {}
    match error["type"]:
        case "missing":
            return f"{where}: expected a value, got none"
        case "extra_forbidden":
            return f"{where}: there is no such field"
        case "literal_error" | "enum":
            expected = f"expected {context['expected']}"
        case "tuple_type" | "list_type":
            expected = "expected a list"
        case "model_type" | "dict_type" | "dataclass_type" | "model_attributes_type":
            expected = "expected a mapping"
        case "too_short":
            return f"{where}: expected at least {context['min_length']}, got {context['actual_length']}"
        case "string_pattern_mismatch":
            expected = f"expected a text like {context['pattern']}"
        case _:
            expected = error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    has_value = ", got " in expected or error["type"] == "kind" or isinstance(error["input"], dict)
    got = "" if has_value else f", got {quote(error['input'])}"
    return f"{where}: {expected}{got}"
