"""`timers`: its commands, each imported when it is called."""

import click

from shared.cli.input.lazy_group import LazyGroup

TIMERS_COMMANDS = {
    "ls": "ls:ls",
    "export": "export:export",
    "import": "import_command:import_timers",
    "backup": "backup:backup",
}
"""Each command with its module and function."""


@click.group(cls=LazyGroup, package="shared.cli.timers", modules=TIMERS_COMMANDS)
def timers() -> None:
    """List, move and back up pending timers.

    In a cluster, run these commands in the Pod of `timers` with `kubectl exec`. They fire no timer.
    """
