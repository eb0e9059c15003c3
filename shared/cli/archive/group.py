"""`archive`: its commands, each imported when it is called."""

import importlib

import click

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


class _ArchiveGroup(click.Group):
    """Imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(ARCHIVE_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in ARCHIVE_COMMANDS:
            return None
        module, _, function = ARCHIVE_COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"shared.cli.archive.{module}"), function)
        return command


@click.group(cls=_ArchiveGroup)
def archive() -> None:
    """List, print, compare, check and restore archived objects.

    A policy names the archives. The installed policy counts, unless --policy or $TTL_POLICY names another. The
    credentials of a bucket come from the environment.
    """
