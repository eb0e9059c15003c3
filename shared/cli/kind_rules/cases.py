"""Test kind rules with the objects of a file, for `kinds test`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from shared.adapters.config.yaml_file import describe_problem
from shared.core.finish import Finish, finish_of
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.objects import format_instant, printable, ref_of
from shared.core.ttl.durations import format_duration
from shared.core.ttl.ttl import InvalidTtlError, native_ttl
from shared.errors import TtlError


class Expect(BaseModel):
    """The expected result for an object; `finished: null` means that the shape of its status is unknown to the rule.

    Attributes:
        at: The finish time (RFC 3339); null if it is unknown.
        ttl: The TTL of the kind's own field: `1h`, `never`, `none`; if left out, it is not checked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    finished: bool | None
    at: str | None = None
    outcome: Outcome | None = None
    ttl: str | None = None


class Case(BaseModel):
    """An object with the expected result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    expect: Expect
    object: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one document.

    Attributes:
        text: The text to print.
        is_right: Whether a rule exists and, for a case, gives the expected result.
        is_case: Whether the document is a case, with an expected result.
    """

    text: str
    is_right: bool
    is_case: bool


def test_all(documents: Sequence[dict[str, Any]], known: Catalogue, name: str) -> Iterator[Result]:
    """Test each object or case of a file.

    Raises:
        TtlError: A case is invalid; the message names the file, the document and the field.
    """
    for number, document in enumerate(documents, start=1):
        if "expect" in document or "object" in document:
            yield _test_case(_parse_case(document, f"{name}, object {number}"), known)
        else:
            result = _apply_rule(document, known)
            text = f"{printable(str(ref_of(document)))}\n  {_describe(result)}"
            yield Result(text, result is not None, is_case=False)


def _parse_case(document: dict[str, Any], place: str) -> Case:
    try:
        return Case.model_validate(document)
    except ValidationError as error:
        raise TtlError(f"{place}: {describe_problem(error.errors(include_url=False)[0])}") from None


def _test_case(case: Case, known: Catalogue) -> Result:
    result = _apply_rule(case.object, known)
    expected = case.expect.model_dump(mode="json", exclude=None if case.expect.ttl else {"ttl"})
    got = result and {key: result[key] for key in expected}
    if got == expected:
        return Result(f"ok     {case.name}: {_describe(result)}", is_right=True, is_case=True)
    lines = [f"WRONG  {case.name}", f"         expected {_describe(expected)}", f"         got      {_describe(got)}"]
    return Result("\n".join(lines), is_right=False, is_case=True)


def _apply_rule(obj: Any, known: Catalogue) -> dict[str, Any] | None:
    """Return what the object's rule gives, in the form of `expect`; None if its kind has no rule."""
    ref = ref_of(obj)
    rule = known.get(ref.api_version, ref.kind)
    if rule is None:
        return None
    finish: Finish = finish_of(obj, rule)
    at = finish.at and format_instant(finish.at)
    return {"finished": finish.finished, "at": at, "outcome": finish.outcome, "ttl": _native_ttl(obj, rule)}


def _native_ttl(obj: Any, rule: KindRule) -> str:
    try:
        ttl = native_ttl(obj, rule.ttl)
    except InvalidTtlError as error:
        return f"unreadable ({error})"
    if ttl is None:
        return "none"
    return "never" if ttl.after is None else format_duration(ttl.after)


def _describe(result: dict[str, Any] | None) -> str:
    if result is None:
        return "no kind rule for its apiVersion and kind"
    match result["finished"]:
        case None:
            finished = "the shape of its status is unknown to the rule"
        case False:
            finished = "unfinished"
        case _:
            how = f", {result['outcome']}" if result["outcome"] else ", outcome unknown"
            finished = f"finished{how}, " + (f"at {result['at']}" if result["at"] else "finish time unknown")
    ttl = result.get("ttl")
    return f"{finished}; its own TTL field: {ttl}" if ttl else finished
