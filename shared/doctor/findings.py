"""What a check comes to: one line, and below it the command that mends it."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shared.core.objects import printable

_DETAIL_CHARACTERS_MAX = 300


class Level(StrEnum):
    """How bad it is. What could not be checked is a warning: nobody knows that it is well."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check.

    Attributes:
        what: What was looked at, in a few words.
        detail: What is wrong with it; of what is well, what it is.
        fix: The command; empty where all is well.
    """

    level: Level
    what: str
    detail: str = ""
    fix: str = ""

    def __str__(self) -> str:
        """One line, or two."""
        line = f"{self.level:4}  {self.what}" + (f" — {self.detail}" if self.detail else "")
        return f"{line}\n      {self.fix}" if self.fix else line


@dataclass(frozen=True, slots=True)
class Place:
    """Where the installation is, and how its operator reaches it: what makes a command one that can be pasted.

    Attributes:
        namespace: Of the installation.
        manifests: The folder `knative` that came with this program.
        overlay: The folder that was applied; empty where nobody said which.
        options: Those of kubectl that lead to the cluster.
        is_own: There is more than a start that is shipped has: applied over it, that would take it away.
        own_kinds: The names of the kinds whose rules are not shipped, but mounted.
    """

    namespace: str
    manifests: str
    overlay: str = ""
    options: tuple[str, ...] = ()
    is_own: bool = False
    own_kinds: frozenset[str] = frozenset()

    @property
    def kubectl(self) -> str:
        """`kubectl`, with the options that lead to the cluster."""
        return shlex.join(("kubectl", *self.options))

    def command(self, *words: str) -> str:
        """A kubectl command in the installation's namespace."""
        return f"{self.kubectl} -n {self.namespace} {shlex.join(words)}"

    def apply_files(self, *paths: str) -> str:
        """Apply some of the shipped files; only for objects that lie in no namespace."""
        return " ".join([f"{self.kubectl} apply", *(f"-f {shlex.quote(f'{self.manifests}/{path}')}" for path in paths)])

    def join(self, kind: str, *, with_source: bool = False) -> str:
        """Apply what lets a kind join that has no components.

        Args:
            kind: `workflows.argoproj.io`.
            with_source: Its ApiServerSource as well.
        """
        words = ["kubectl", "ttl", "kinds", "manifests", kind]
        words += ["--source=apiserver", f"--namespace={self.namespace}"] if with_source else []
        words += ["--kinds-dir=YOUR_RULES"] if kind in self.own_kinds else []
        return f"{shlex.join(words)} | {self.kubectl} apply -f -"

    def guard(self, kinds: Sequence[str], user: str = "") -> str:
        """Apply the delete guard of some kinds.

        Args:
            kinds: `workflows.argoproj.io`.
            user: Another user that the guard binds.
        """
        words = ["kubectl", "ttl", "kinds", "manifests", *kinds, "--only=guard", f"--namespace={self.namespace}"]
        words += [f"--user={user}"] if user else []
        words += ["--kinds-dir=YOUR_RULES"] if self.own_kinds & {*kinds} else []
        return f"{shlex.join(words)} | {self.kubectl} apply -f -"

    def apply(self, default: str = "knative", note: str = "") -> str:
        """Apply the overlay again; where nobody said which it was, the shipped one of this name, if it may be that."""
        folder, hint = self.overlay, ""
        if not folder and self.is_own:
            folder, hint = "YOUR_OVERLAY", "the overlay that you installed (--overlay)"
        elif not folder:
            folder = f"{self.manifests}/overlays/{default}"
            hint = "or the overlay that you installed (--overlay)"
        hint = note or hint
        return f"{self.kubectl} apply -k {shlex.quote(folder)}" + (f"    # {hint}" if hint else "")


def ok(what: str, detail: str = "") -> Finding:
    """All is well."""
    return Finding(Level.OK, what, short(detail))


def warn(what: str, detail: str, fix: str) -> Finding:
    """It works, but not as it should, or nobody can tell."""
    return Finding(Level.WARN, what, short(detail), fix)


def fail(what: str, detail: str, fix: str) -> Finding:
    """It does not work."""
    return Finding(Level.FAIL, what, short(detail), fix)


def unknown(what: str, why: str, place: Place) -> Finding:
    """It could not be looked at."""
    return warn(what, f"cannot be checked: {why}", f"{place.kubectl} auth whoami    # then doctor, as one who may")


def short(text: str) -> str:
    """One line, cut off where it only repeats itself; it may quote what anybody wrote."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _DETAIL_CHARACTERS_MAX else f"{line[:_DETAIL_CHARACTERS_MAX]} ..."


def as_json(findings: Sequence[Finding]) -> str:
    """The documented JSON: a list of checks; `fix` is null where nothing is to be mended."""
    return json.dumps(
        [
            {"level": one.level.lower(), "check": one.what, "detail": one.detail or None, "fix": one.fix or None}
            for one in findings
        ],
        indent=2,
        ensure_ascii=False,
    )
