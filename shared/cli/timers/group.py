"""`timers`: its commands, each imported when it is called."""

import click

from shared.cli.input.lazy_group import CommandPlace, LazyGroup

TIMERS_COMMANDS = {
    "ls": CommandPlace(
        "ls:ls", "List pending timers, with their number for each purpose, and when the first of them is due."
    ),
    "export": CommandPlace(
        "export:export", "Write all pending timers to FILE, or to standard output, one JSON line for each."
    ),
    "import": CommandPlace(
        "import_command:import_timers", "Set the timers of an export: of FILE, or of standard input."
    ),
    "backup": CommandPlace("backup:backup", "Copy the timer file to FILE, while a process uses it."),
}
"""Each command with its place, and the first paragraph of its help."""


@click.group(cls=LazyGroup, package="shared.cli.timers", places=TIMERS_COMMANDS)
def timers() -> None:
    """List, move and back up pending timers.

    In a cluster, run these commands in the Pod of `timers` with `kubectl exec`. They fire no timer.
    """
