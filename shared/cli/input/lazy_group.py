"""A group of commands that imports each command when it is called."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """Imports a command when it is called, so that a command needs only its own libraries.

    Args:
        package: The package of the commands.
        modules: Each command with its module in the package and its function: `plan:plan`.
        attributes: Those of `click.Group`.
    """

    def __init__(self, *, package: str, modules: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._package, self._modules = package, modules

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in their order."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import and return a command; None if there is none of this name."""
        if cmd_name not in self._modules:
            return None
        module, _, function = self._modules[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"{self._package}.{module}"), function)
        return command
