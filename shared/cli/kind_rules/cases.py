"""Test kind rules with the objects of a file, for `kinds test`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from shared.adapters.config.yaml_file import describe_problem
from shared.core.deadlines.deadline import is_merged
from shared.core.decision.finish import (
    EARLY_FINISH,
    Finish,
    find_early_finish,
    finish_of,
    lacks_managed_fields,
    run_of,
    waiting_of,
)
from shared.core.kinds.predicates import UnknownShapeError
from shared.core.kinds.rule import Catalogue, Outcome
from shared.core.kinds.ttl_and_deadline import DeadlineRule, NativeDeadline, NativeTtl
from shared.core.ttl.ttl import InvalidTtlError, native_ttl
from shared.core.values.objects import format_instant, printable, ref_of
from shared.core.values.timing import format_duration
from shared.errors import TtlError


class ExpectDeadline(BaseModel):
    """The expected run of an unfinished object; a field that is left out is not checked.

    Attributes:
        started_at: Its start or last resume (RFC 3339); null if it is unknown.
        suspended: Whether the clock does not run; null if the shape of the object is unknown to the rule.
        pending: Since when it waits for its first start (RFC 3339), or `unknown`; `suspended` if it waits on purpose,
            `none` if it has started or its kind does not show that; null if the shape is unknown to the rule.
        native: The deadline of the kind's own field: `1h`, `0s`, `never`, `none`.
        stopped: Whether it has what a stop writes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    started_at: str | None = None
    suspended: bool | None = None
    pending: str | None = None
    native: str | None = None
    stopped: bool | None = None


class Expect(BaseModel):
    """The expected result for an object; `finished: null` means that the shape of its status is unknown to the rule.

    Attributes:
        at: The finish time (RFC 3339); null if it is unknown.
        ttl: The TTL of the kind's own field: `1h`, `never`, `none`; if left out, it is not checked.
        deadline: The expected start and deadline; if left out, they are not checked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    finished: bool | None
    at: str | None = None
    outcome: Outcome | None = None
    ttl: str | None = None
    deadline: ExpectDeadline | None = None


class KindCase(BaseModel):
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
            notes = f"{_describe_early(document, known)}{_describe_cut(document, known)}"
            text = f"{printable(str(ref_of(document)))}\n  {_describe(result)}{notes}"
            yield Result(text, result is not None, is_case=False)


def _parse_case(document: dict[str, Any], place: str) -> KindCase:
    try:
        return KindCase.model_validate(document)
    except ValidationError as error:
        raise TtlError(f"{place}: {describe_problem(error.errors(include_url=False)[0])}") from None


def _test_case(case: KindCase, known: Catalogue) -> Result:
    result = _apply_rule(case.object, known)
    optional = {name for name in ("ttl", "deadline") if getattr(case.expect, name) is None}
    expected = case.expect.model_dump(mode="json", exclude=optional)
    got = result and {key: result[key] for key in expected}
    if got is not None and case.expect.deadline is not None:
        expected["deadline"] = case.expect.deadline.model_dump(by_alias=True, exclude_unset=True)
        got["deadline"] = got["deadline"] and {key: got["deadline"][key] for key in expected["deadline"]}
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
    return {
        "finished": finish.finished,
        "at": at,
        "outcome": finish.outcome,
        "ttl": _of_field(obj, rule.ttl),
        "deadline": rule.deadline and describe_run(obj, rule.deadline),
    }


def describe_run(obj: Any, rule: DeadlineRule) -> dict[str, Any]:
    """What a rule reads from an object about its deadline, in the form of `expect.deadline`."""
    run = run_of(obj, rule)
    return {
        "startedAt": run and run.started_at and format_instant(run.started_at),
        "suspended": run and run.is_suspended,
        "pending": _describe_waiting(obj, rule),
        "native": _of_field(obj, rule.native),
        "stopped": any(is_merged(obj, stop.patch) for stop in rule.patches),
    }


def _describe_waiting(obj: Any, rule: DeadlineRule) -> str | None:
    try:
        waiting = waiting_of(obj, rule)
    except UnknownShapeError:
        return None
    if waiting is None:
        return "none"
    if waiting.is_on_purpose:
        return "suspended"
    return format_instant(waiting.since) if waiting.since else "unknown"


def _describe_early(obj: Any, known: Catalogue) -> str:
    """Say that the finish time of the status is ignored, because it is before the creation of the object."""
    ref = ref_of(obj)
    rule = known.get(ref.api_version, ref.kind)
    if rule is None or (early := find_early_finish(obj, rule, finish_of(obj, rule))) is None:
        return ""
    return f"\n  {EARLY_FINISH.format(format_instant(early))}"


def _describe_cut(obj: Any, known: Catalogue) -> str:
    """Say that the finish time depends on `managedFields`, if kubectl left them out."""
    ref = ref_of(obj)
    rule = known.get(ref.api_version, ref.kind)
    if rule is None or not lacks_managed_fields(obj, rule, finish := finish_of(obj, rule)):
        return ""
    what = "may be later" if finish.at else "is unknown"
    dump = "repeat the command with the output of `kubectl get -o yaml --show-managed-fields`"
    return f"\n  the finish time {what} because the object has no metadata.managedFields: {dump}"


def _of_field(obj: Any, fields: NativeTtl | NativeDeadline | None) -> str:
    try:
        ttl = native_ttl(obj, fields)
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
    ttl, run = result.get("ttl"), result.get("deadline")
    parts = [
        finished,
        f"its own TTL field: {ttl}" if ttl else "",
        _describe_run(run) if run and not result["finished"] else "",
    ]
    return "; ".join(part for part in parts if part)


def _describe_run(run: dict[str, Any]) -> str:
    words, waits = [word for word in ("suspended", "stopped") if run.get(word)], run.get("pending") or "none"
    words += [f"running since {run['startedAt']}"] if run.get("startedAt") and not run.get("suspended") else []
    words += {"none": [], "suspended": ["waits on purpose"]}.get(waits, [f"waits for its start since {waits}"])
    words += [f"its own deadline field: {run['native']}"] if run.get("native", "none") != "none" else []
    return ", ".join(words)
