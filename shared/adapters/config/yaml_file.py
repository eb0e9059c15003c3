"""YAML that people write, read into a model: what is wrong is told with file, line and what was expected."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shared.core.objects import quote
from shared.errors import TtlError

TOLD_MAX = 10
"""Errors of one file that are told; more come up once these are mended."""

SIZE_MAX = 1_048_576
"""Bytes of a file: what a ConfigMap can hold."""

DEPTH_MAX = 100
"""Lists and mappings in each other: the C library that reads YAML overflows its stack on tens of thousands."""

VALUES_MAX = 100_000
"""With each alias written out: nine levels of nine aliases each are half a billion values."""

ModelT = TypeVar("ModelT", bound=BaseModel)
_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(_Safe):  # type: ignore[misc]
    """YAML 1.1, and what JSON and YAML 1.2 take for a number beside: 1e-05."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)

_ALIKE = {
    "bool": re.compile("true|True|TRUE|false|False|FALSE"),
    "int": re.compile("[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+"),
    "float": re.compile("[^_:]+"),
    "timestamp": re.compile("(?!)"),
    "str": re.compile("(?![-+]?[0-9]+$|0o[0-7]+$).*", re.DOTALL),
}
"""What is the same in YAML 1.1 and 1.2 though it has no quotes, by what 1.1 takes it for."""


class FileError(TtlError):
    """A file is not what it should be; each line of the message names the file, the line, the field and why."""


def read_model(path: Path, model: type[ModelT], *, context: object = None) -> ModelT:
    """A file as a model; `context` is for the model's validators.

    Raises:
        FileError: It cannot be read, is not one YAML document, has a field twice or a value that versions of YAML read
            differently, or is not what the model expects.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path.name}: expected a text file: {error}") from None
    return parse_model(text, model, name=path.name, context=context)


def parse_model(
    text: str,
    model: type[ModelT],
    *,
    name: str,
    refine: Callable[[ModelT], ModelT] = lambda model: model,
    context: object = None,
) -> ModelT:
    """A text as a model.

    Args:
        text: YAML.
        model: What it should be.
        name: What errors call it.
        refine: What is made of it; raises pydantic's ValidationError, with the places, where it cannot be.
        context: For the model's validators.

    Raises:
        FileError: As above.
    """
    if len(text) > SIZE_MAX:
        raise FileError(f"{name}: expected at most {SIZE_MAX} characters, got {len(text)}")
    try:
        _check_depth(text, name)
        loader = Loader(text)
        node = loader.get_single_node()
        _refuse(sorted(_slips(node)), name)
        if _count(node, {}) > VALUES_MAX:
            raise FileError(f"{name}: expected at most {VALUES_MAX} values, with each alias written out")
        document = loader.construct_document(node) if node else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        told = getattr(error, "problem", None) or " ".join(str(error).split())
        raise FileError(f"{place}: expected one YAML document: {told}") from None
    except (ValueError, RecursionError) as error:  # a date that is none, or brackets without end
        raise FileError(f"{name}: expected YAML: {error}") from None
    try:
        read = refine(model.model_validate(document, context=context))
    except ValidationError as error:
        told = list(_of_their_own(error.errors(include_url=False)))
        _refuse([(_line_of(node, one["loc"]), _sentence(one)) for one in told], name)
        raise
    return read


def _refuse(told: Sequence[tuple[int, str]], name: str) -> None:
    if told:
        lines = [f"{name}:{line}: {sentence}" for line, sentence in told[:TOLD_MAX]]
        more = [f"{name}: and {len(told) - TOLD_MAX} more"] if len(told) > TOLD_MAX else []
        raise FileError("\n".join(lines + more)) from None


def _check_depth(text: str, name: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise FileError(f"{name}:{line}: expected at most {DEPTH_MAX} lists and mappings in each other")


def _count(node: Any, counted: dict[int, int]) -> int:
    """Values with each alias written out; one that holds itself is told by whoever reads it."""
    if id(node) not in counted:
        counted[id(node)] = 1
        parts = [] if node is None or isinstance(node, yaml.ScalarNode) else node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for entry in node.value for part in entry]
        counted[id(node)] += sum(_count(part, counted) for part in parts)
    return counted[id(node)]


def _slips(node: Any) -> Iterator[tuple[int, str]]:
    """Lines of what YAML takes without a word and some writer did not mean, and what was expected there."""
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
    """YAML takes the last of two equal keys; whoever wrote both meant something else."""
    keys: set[str] = set()
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
        if key.value in keys:
            yield key.start_mark.line + 1, f"{key.value}: expected it once, got it twice"
        keys.add(key.value)


def _ambiguous(node: Any) -> Iterator[tuple[int, str]]:
    """Octal 010, sexagesimal 1:30, yes and no: texts, or other numbers, to whoever reads YAML 1.2."""
    alike = None if node.style else _ALIKE.get(node.tag.rpartition(":")[2])
    if alike and not alike.fullmatch(node.value):
        expected = "expected quotes around it, or a plain number, true or false"
        yield node.start_mark.line + 1, f"{quote(node.value)}: {expected}: YAML 1.1 and 1.2 read it differently"


def _line_of(node: Any, place: Sequence[str | int]) -> int:
    """Where a field stands, counted from 1; of one that is missing, where its place would be."""
    line = node.start_mark.line if node else 0
    for part in place:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found:
                line, node = found[0].start_mark.line, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line
    return int(line) + 1


def _of_their_own(errors: Sequence[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Without the lists that are too short only since what they hold was refused."""
    for one in errors:
        inside = len(one["loc"]) + 1
        spoiled = any(len(other["loc"]) >= inside and other["loc"][: inside - 1] == one["loc"] for other in errors)
        if one["type"] != "too_short" or not spoiled:
            yield one


def _sentence(error: ErrorDetails) -> str:
    """`ttl.fields.0.unit: expected 'seconds' or 'duration', got 'hours'`."""
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
    has_told = ", got " in expected or error["type"] == "kind" or isinstance(error["input"], dict)
    got = "" if has_told else f", got {quote(error['input'])}"
    return f"{where}: {expected}{got}"
