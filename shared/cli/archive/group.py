"""`archive`: its commands, each imported when it is called."""

import click

from shared.cli.input.lazy_group import LazyGroup

ARCHIVE_COMMANDS = {
    "ls": "ls:ls",
    "get": "get:get",
    "diff": "diff:diff",
    "restore": "restore:restore",
    "verify": "verify:verify",
    "prune": "prune:prune",
    "lifecycle": "prune:lifecycle",
}
"""Each command with its module and function."""


@click.group(cls=LazyGroup, package="shared.cli.archive", modules=ARCHIVE_COMMANDS)
def archive() -> None:
    """List, print, compare, check and restore archived objects.

    A policy names the archives. The installed policy counts, unless --policy or $TTL_POLICY names another. The
    credentials of a bucket come from the environment.
    """
