"""A group of commands that imports each command when it is called."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem


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
