"""`ttl-after-finished`, also installed as `kubectl-ttl`, so that `kubectl ttl` works: its commands.

Each command is imported when it is called, so that a command needs only its own libraries.
"""

import importlib
import logging
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from shared import __version__
from shared.adapters.telemetry.log_lines import configure_logging, is_json, log_form
from shared.cli.output.streams import OutputError, explain_output, prepare_errors, prepare_output


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """Where a command is, and what the list of commands says about it.

    Attributes:
        module: The module in the package of the group, and the function: `plan:plan`.
        text: The first paragraph of the command's own help. A test compares both.
    """

    module: str
    text: str


class LazyGroup(click.Group):
    """Imports a command when it is called, so that a command needs only its own libraries.

    The list of commands and its completion import no command.

    Args:
        package: The package of the commands.
        places: Each command with its place.
        attributes: Those of `click.Group`.
    """

    def __init__(self, *, package: str, places: Mapping[str, CommandPlace], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._package, self._places = package, places

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in their order."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is none of this name.

        For a completion, return what the index has about the command instead.
        """
        if cmd_name not in self._places:
            return None
        if ctx.resilient_parsing:
            from shared.cli.completion.index import indexed_command  # noqa: PLC0415 - only for a completion

            return indexed_command(*_path_of(ctx), cmd_name)
        module, _, function = self._places[cmd_name].module.partition(":")
        command: click.Command = getattr(importlib.import_module(f"{self._package}.{module}"), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the list of commands, as click writes it."""
        limit = formatter.width - 6 - max(map(len, self._places))
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._shorten(name, limit)) for name in self._places])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command, or an option of the group."""
        names = [name for name in self._places if name.startswith(incomplete)]
        own = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=self._shorten(name)) for name in names), *own]

    def _shorten(self, name: str, limit: int = 45) -> str:
        """Shorten the text of a command to a limit of characters, by click's rule and its default."""
        return click.Command(name, help=self._places[name].text).get_short_help_str(limit)


def _path_of(ctx: click.Context) -> tuple[str, ...]:
    """Return the names of a group below the program: `archive`."""
    return () if ctx.parent is None else (*_path_of(ctx.parent), ctx.info_name or "")


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
        "unused:references",
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
    "archive": CommandPlace("main:archive", "List, print, compare, check and restore archived objects."),
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
    "timers": CommandPlace("main:timers", "List, move and back up pending timers."),
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
        "completion.index:completion",
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


ARCHIVE_COMMANDS = {
    "ls": CommandPlace(
        "ls:ls",
        "List archived objects, one for each stored resource version, by kind, by the day of the finish, and by name.",
    ),
    "get": CommandPlace(
        "get:get", "Print an archived object as the API server sent it, with its managedFields and its status."
    ),
    "diff": CommandPlace("get:diff", "Show how the live object differs from the archived one, as a unified diff."),
    "restore": CommandPlace(
        "restore:restore",
        "Create an archived object again, under its name, without the fields that the API server sets.",
    ),
    "init": CommandPlace(
        "identity:init", "Give an empty destination an id, which the installation remembers as that of its archive."
    ),
    "adopt": CommandPlace(
        "identity:adopt",
        "Use the destination of an archive as it is from now on, whatever the installation remembers.",
    ),
    "verify": CommandPlace("ls:verify", "Read archived objects, and check the digest and the identity of each."),
    "prune": CommandPlace(
        "prune:prune", "Delete the documents and logs that are older than `keep` of the archive, of all clusters."
    ),
    "lifecycle": CommandPlace(
        "prune:lifecycle", "Print the lifecycle rule with which the bucket of an archive deletes old documents itself."
    ),
}
"""Each command with its place, and the first paragraph of its help."""


@click.group(cls=LazyGroup, package="shared.cli.archive", places=ARCHIVE_COMMANDS)
def archive() -> None:
    """List, print, compare, check and restore archived objects.

    A policy names the archives. The installed policy counts, unless --policy or $TTL_POLICY names another. The
    credentials of a bucket come from the environment.
    """


TIMERS_COMMANDS = {
    "ls": CommandPlace(
        "ls:ls", "List pending timers, with their number for each purpose, and when the first of them is due."
    ),
    "export": CommandPlace(
        "move:export", "Write all pending timers to FILE, or to standard output, one JSON line for each."
    ),
    "import": CommandPlace("move:import_timers", "Set the timers of an export: of FILE, or of standard input."),
    "backup": CommandPlace("move:backup", "Copy the timer file to FILE, while a process uses it."),
}
"""Each command with its place, and the first paragraph of its help."""


@click.group(cls=LazyGroup, package="shared.cli.timers", places=TIMERS_COMMANDS)
def timers() -> None:
    """List, move and back up pending timers.

    In a cluster, run these commands in the Pod of `timers` with `kubectl exec`. They fire no timer.
    """
