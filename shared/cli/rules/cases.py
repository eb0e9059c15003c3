"""What rules say of objects, beside what is expected of them: `kinds test`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from shared.core.finish.finish import Finish, finish_of
from shared.core.kinds.rule import Catalogue, KindRule, Outcome
from shared.core.objects import format_instant, printable, ref_of
from shared.core.ttl.durations import format_duration
from shared.core.ttl.native import InvalidFieldError, read_native_ttl
from shared.errors import TtlError

_EXPECTED = {"missing": "expected a value, got none", "extra_forbidden": "there is no such field"}


class Expect(BaseModel):
    """What is expected of an object; `finished: null` is a status of a shape that the rule does not know.

    Attributes:
        at: RFC 3339; null where nothing tells when.
        ttl: Of the kind's own field: `1h`, `never`, `none`; left out, anything.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    finished: bool | None
    at: str | None = None
    outcome: Outcome | None = None
    ttl: str | None = None


class Case(BaseModel):
    """An object, and what is expected of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    expect: Expect
    object: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one document.

    Attributes:
        text: For people.
        is_right: Whether there is a rule for it, and it says what is expected, if anything is.
        is_case: Whether anything is expected.
    """

    text: str
    is_right: bool
    is_case: bool


def test_all(documents: Sequence[dict[str, Any]], known: Catalogue, name: str) -> Iterator[Result]:
    """Each object or case of a file, in turn.

    Raises:
        TtlError: A case is none; the message names the file, the document and the field.
    """
    for number, document in enumerate(documents, start=1):
        if "expect" in document or "object" in document:
            yield _test_case(_parse_case(document, f"{name}, object {number}"), known)
        else:
            told = _told(document, known)
            yield Result(f"{printable(str(ref_of(document)))}\n  {_words(told)}", told is not None, is_case=False)


def _parse_case(document: dict[str, Any], place: str) -> Case:
    try:
        return Case.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        expected = _EXPECTED.get(first["type"]) or first["msg"].replace("Input should be", "expected")
        raise TtlError(f"{place}: {field}: {expected}") from None


def _test_case(case: Case, known: Catalogue) -> Result:
    told = _told(case.object, known)
    wanted = case.expect.model_dump(mode="json", exclude=None if case.expect.ttl else {"ttl"})
    got = told and {key: told[key] for key in wanted}
    if got == wanted:
        return Result(f"ok     {case.name}: {_words(told)}", is_right=True, is_case=True)
    lines = [f"WRONG  {case.name}", f"         expected {_words(wanted)}", f"         got      {_words(got)}"]
    return Result("\n".join(lines), is_right=False, is_case=True)


def _told(obj: Any, known: Catalogue) -> dict[str, Any] | None:
    """What the object's rule says, as a case expects it; None where there is no rule."""
    ref = ref_of(obj)
    rule = known.get(ref.api_version, ref.kind)
    if rule is None:
        return None
    finish: Finish = finish_of(obj, rule)
    at = finish.at and format_instant(finish.at)
    return {"finished": finish.finished, "at": at, "outcome": finish.outcome, "ttl": _native_ttl(obj, rule)}


def _native_ttl(obj: Any, rule: KindRule) -> str:
    try:
        spoken = read_native_ttl(obj, rule.ttl) if rule.ttl else None
    except InvalidFieldError as error:
        return f"unreadable ({error})"
    if spoken is None:
        return "none"
    return "never" if spoken[1] is None else format_duration(spoken[1])


def _words(told: dict[str, Any] | None) -> str:
    if told is None:
        return "there is no rule for its apiVersion and kind"
    match told["finished"]:
        case None:
            finished = "its status has a shape that the rule does not know"
        case False:
            finished = "unfinished"
        case _:
            how = f", {told['outcome']}" if told["outcome"] else ", outcome not told"
            finished = f"finished{how}, " + (f"at {told['at']}" if told["at"] else "nothing tells when")
    ttl = told.get("ttl")
    return f"{finished}; TTL of its own: {ttl}" if ttl else finished
