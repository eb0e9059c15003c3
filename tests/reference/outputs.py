"""The JSON Schema of each `-o json`: docs/reference/schemas. The models forbid unknown fields; outputs may get more."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from tests.reference.output_journal import Archived, ArchivedDeletedReport, DeletedReport, Deletions, Refusals, Stops
from tests.reference.output_objects import GoneReport, Identity, ObjectReport, Output, UsageReport
from tests.reference.output_plans import PlanRows, PolicyComparison, Top
from tests.reference.output_ui import UiOverview

FOLDER_NAME = "schemas"


class Check(Output):
    """One check of `doctor`."""

    level: Literal["ok", "warn", "fail"]
    check: str
    detail: str | None
    fix: str | None


class KindReport(Output):
    """One kind rule."""

    name: str
    shipped: bool
    file: str
    replaces: str | None
    rule: Annotated[dict[str, Any], Field(description="The rule, as in its file.")]


class TimerObject(Output):
    """The object of a timer."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class TimerReport(Output):
    """A pending timer."""

    ref: TimerObject
    purpose: str
    due_at: datetime
    attempts: int


class TimerList(Output):
    """`timers ls`."""

    timers: list[TimerReport]
    listed: int
    by_purpose: dict[str, int]
    first_due_at: datetime | None
    pending: int


class TimerChange(TimerReport):
    """One line of `timers ls --watch`."""

    change: Literal["pending", "moved", "retried", "gone"]


class StoredVersion(Identity):
    """A stored version of an object."""

    uid: str
    resource_version: str
    archived_at: datetime
    digest: str
    location: str


class DamagedVersion(StoredVersion):
    """A stored version that cannot be restored."""

    problem: str


class Verification(Output):
    """`archive verify`."""

    verified: int
    damaged: list[DamagedVersion]


@dataclass(frozen=True)
class JsonOutput:
    """The JSON of one command.

    Attributes:
        command: The command, with the options on which the form depends.
        adapter: Validates it, and makes its schema.
    """

    command: str
    adapter: TypeAdapter[Any]

    def schema(self) -> str:
        """The text of its JSON Schema."""
        found = self.adapter.json_schema(mode="validation")
        first = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"{self.command} -o json"}
        return json.dumps(first | {name: one for name, one in found.items() if name != "title"}, indent=2) + "\n"


def _output(command: str, kind: Any) -> JsonOutput:
    return JsonOutput(command, TypeAdapter(kind))


_Gone = GoneReport | ArchivedDeletedReport | DeletedReport

OUTPUTS = {
    "plan": _output("plan", list[ObjectReport | UsageReport]),
    "plan-by": _output("plan --by", PlanRows),
    "plan-policy": _output("plan --policy", PolicyComparison),
    "top": _output("top", Top),
    "explain": _output("explain", ObjectReport | UsageReport | _Gone | list[ObjectReport]),
    "deleted": _output("deleted", Deletions),
    "deleted-stopped": _output("deleted --stopped", Stops),
    "deleted-archived": _output("deleted --archived", Archived),
    "deleted-refused": _output("deleted --refused", Refusals),
    "references": _output("references", UsageReport),
    "unused": _output("unused", list[UsageReport]),
    "timers-ls": _output("timers ls", TimerList),
    "timers-watch": _output("timers ls --watch", TimerChange),
    "archive-ls": _output("archive ls", list[StoredVersion]),
    "archive-verify": _output("archive verify", Verification),
    "kinds": _output("kinds", KindReport | list[KindReport]),
    "doctor": _output("doctor", list[Check]),
    "ui": _output("ui", UiOverview),
}
"""Each JSON output by the name of its schema file."""


def render() -> dict[str, str]:
    """The text of each schema, by its path below docs/reference."""
    return {f"{FOLDER_NAME}/{name}.json": one.schema() for name, one in OUTPUTS.items()}
