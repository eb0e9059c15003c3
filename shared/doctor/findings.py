"""The result of a check: one line, and the command that fixes a problem."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shared.core.values.objects import printable
from shared.installation.place import Place

_DETAIL_CHARACTERS_MAX = 300


class Level(StrEnum):
    """The severity of a finding. A check that could not run is a warning, as the result is unknown."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        level: The severity.
        what: The name of the check, such as `Broker default`.
        detail: The problem; if there is none, the state.
        fix: The command that fixes the problem; empty if there is none.
    """

    level: Level
    what: str
    detail: str = ""
    fix: str = ""

    def __str__(self) -> str:
        """Return one line, and a second line with the command if there is one."""
        line = f"{self.level:4}  {self.what}" + (f" — {self.detail}" if self.detail else "")
        return f"{line}\n      {self.fix}" if self.fix else line


def ok(what: str, detail: str = "") -> Finding:
    """Make a finding without a problem."""
    return Finding(Level.OK, what, short(detail))


def warn(what: str, detail: str, fix: str) -> Finding:
    """Make a finding of a part that works, but not as it should, or of a check that could not run."""
    return Finding(Level.WARN, what, short(detail), fix)


def fail(what: str, detail: str, fix: str) -> Finding:
    """Make a finding of a part that does not work."""
    return Finding(Level.FAIL, what, short(detail), fix)


def unknown(what: str, why: str, place: Place) -> Finding:
    """Make a finding of a check that could not run."""
    fix = f"{place.kubectl} auth whoami    # then run doctor as a user with the missing right"
    return warn(what, f"cannot be checked: {why}", fix)


def short(text: str) -> str:
    """Return a text as one line of limited length, without control characters: it may quote untrusted text."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _DETAIL_CHARACTERS_MAX else f"{line[:_DETAIL_CHARACTERS_MAX]} ..."


def as_json(findings: Sequence[Finding]) -> str:
    """Return the documented JSON: a list of checks; `fix` is null if there is no problem."""
    return json.dumps(
        [
            {"level": one.level.lower(), "check": one.what, "detail": one.detail or None, "fix": one.fix or None}
            for one in findings
        ],
        indent=2,
        ensure_ascii=False,
    )
