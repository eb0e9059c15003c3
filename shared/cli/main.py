"""`ttl-after-finished`, also installed as `kubectl-ttl`, so that `kubectl ttl` works."""

import logging
import signal
import sys
from typing import Any

import click

from shared import __version__
from shared.adapters.config.log_form import log_form
from shared.adapters.telemetry.log_lines import configure_logging, is_json
from shared.cli.input.lazy_group import CommandPlace, LazyGroup
from shared.cli.output.streams import OutputError, explain_output, prepare_errors, prepare_output

COMMANDS = {
    "run": CommandPlace(
        "run:run",
        "Delete finished objects when their TTL expires, on the cluster of the current context, until Ctrl-C.",
    ),
    "watch": CommandPlace(
        "watch:watch",
        "Send a CloudEvent for each changed object that may be due to a Broker, until Ctrl-C. Deletes nothing.",
    ),
    "demo": CommandPlace(
        "demo:demo",
        "Show finished Jobs and Pods that are deleted when their TTL expires. Needs no cluster; ends by itself.",
    ),
    "plan": CommandPlace(
        "plan:plan", "Show what would be deleted now, and what is due when, per namespace and kind. Deletes nothing."
    ),
    "explain": CommandPlace(
        "explain:explain",
        "Show the decision about an object, its reason and what to do; then its finish time, its TTL and its deadline.",
    ),
    "deleted": CommandPlace(
        "deleted:deleted",
        "Show what was deleted, when and why. Of an object that is named: all facts of its deletion.",
    ),
    "references": CommandPlace(
        "references:references",
        "Show which objects refer to a Secret or a ConfigMap, and by which field; or since when it is unused.",
    ),
    "unused": CommandPlace(
        "unused:unused",
        "List the Secrets and ConfigMaps to which nothing refers, by namespace and age. Deletes nothing.",
    ),
    "stop": CommandPlace(
        "brake:stop",
        "Stop all deletions now, until `start`. After five seconds no listed process sends a DELETE; nothing is lost.",
    ),
    "start": CommandPlace(
        "brake:start",
        "Start the deletions that `stop` stopped. The next sweep deletes the objects that became due in the meantime.",
    ),
    "hold": CommandPlace(
        "hold:hold", "Keep an object until it is released, even if its TTL expires or its deadline is over."
    ),
    "release": CommandPlace(
        "hold:release", "End a hold: the TTL of the object applies again. With --breaker: release the breaker instead."
    ),
    "set": CommandPlace(
        "set_command:set_ttl",
        "Set the TTL of an object: how long it is kept after it finishes. Or set its deadline: how long it may run.",
    ),
    "archive": CommandPlace("archive.group:archive", "List, print, compare, check and restore archived objects."),
    "pending": CommandPlace(
        "timers.ls:ls",
        "List pending timers, with their number for each purpose, and when the first of them is due.",
    ),
    "top": CommandPlace(
        "top:top", "Show which namespaces and kinds pile up the most finished objects, until Ctrl-C. Deletes nothing."
    ),
    "ui": CommandPlace(
        "ui.command:ui",
        "Show deletions, the forecast and the state of the deleters in the browser, until Ctrl-C. Read-only.",
    ),
    "timers": CommandPlace("timers.group:timers", "List, move and back up pending timers."),
    "import": CommandPlace(
        "importers.import_command:import_policy",
        "Write a policy from the configuration of another cleaner to standard output. Changes nothing in the cluster.",
    ),
    "kinds": CommandPlace(
        "kinds:kinds", "List the kind rules, explain one, test a rule, or print the manifests of a kind."
    ),
    "doctor": CommandPlace(
        "doctor:doctor",
        "Check an installation: one line for each check, and below each problem the command that fixes it.",
    ),
    "completion": CommandPlace(
        "completion.command:completion",
        "Print the script that completes commands, options, kinds, namespaces and objects in bash, zsh or fish.",
    ),
}
"""Each command with its place, and the first paragraph of its help."""


class _Main(LazyGroup):
    """All commands: `explain -f` needs neither the Kubernetes client nor a server."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command; if standard output cannot be written, end with one message."""
        prepare_errors()
        try:
            configure_logging(log_form() or "text", level=logging.WARNING)
            prepare_output()
            if log_form() == "json" and options.get("standalone_mode", True):
                return _end(super().main(*args, **{**options, "standalone_mode": False}))
            return super().main(*args, **options)
        except OutputError as error:
            failure = explain_output(error)
        except click.ClickException as error:
            failure = error
        except click.Abort:
            failure = click.ClickException("aborted")
        if is_json():
            logging.getLogger("ttl").critical(failure.format_message())
        else:
            failure.show()
        sys.exit(failure.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; exit with 130 if Ctrl-C comes before its event loop handles signals."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)


def _end(code: object) -> None:
    """Exit with the code of a command, as click does in standalone mode."""
    sys.exit(code if isinstance(code, int) else 0)


@click.group(cls=_Main, package="shared.cli", places=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ttl-after-finished")
def main() -> None:
    """Delete finished Kubernetes objects of any kind after a TTL."""
