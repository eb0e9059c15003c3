"""Print the decisions of `explain` while they are found."""

import json
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from shared.cli.explanation.explanation_text import as_text
from shared.cli.objects.object_report import ExplainContext, as_json
from shared.cli.objects.preview import ObjectPreview
from shared.cli.output.width import terminal_width

Explanation = tuple[ObjectPreview, ExplainContext | None]
"""The decision about an object, and what was found on its cluster."""


def print_explanations(findings: Sequence[Explanation], output: str) -> None:
    """Print decisions with what was found on the cluster; `output` is `json` or `text`."""
    printer = ExplanationPrinter(output)
    printer.print(findings)
    printer.end()


class ExplanationPrinter:
    """Prints decisions while they are found: the JSON of one object is an object, that of several a list.

    Args:
        output: `json` or `text`.
    """

    def __init__(self, output: str) -> None:
        self._is_json, self._width = output == "json", terminal_width()
        self._count, self._first = 0, ""

    def print(self, findings: Sequence[Explanation]) -> None:
        """Print some decisions, each with what was found on the cluster."""
        for one, context in findings:
            if self._is_json:
                self._print_json(as_json(one.ref, one.decision, one.stop, one.related, context=context))
            else:
                sys.stdout.write(as_text(one, context, self._width) + "\n")  # click flushes each
        sys.stdout.flush()

    def _print_json(self, report: dict[str, Any]) -> None:
        self._count += 1
        if self._count == 1:  # whether it is in a list shows the second one
            self._first = json.dumps(report, indent=2)
            return
        if self._count == 2:  # noqa: PLR2004 - as above
            sys.stdout.write("[\n" + textwrap.indent(self._first, "  "))
        sys.stdout.write(",\n" + textwrap.indent(json.dumps(report, indent=2), "  "))

    def end(self) -> None:
        """Print the end of the JSON."""
        if self._is_json:
            sys.stdout.write({0: "[]\n", 1: f"{self._first}\n"}.get(self._count, "\n]\n"))
            sys.stdout.flush()
