"""The commands and options as a generated index has them: a completion imports no command.

To import a command takes 0.3 to 0.6 s, and a shell asks at each TAB. `make docs` writes index.json from the commands;
a test fails if it differs from them.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from shared.cli.completion.values import complete_value

INDEX = Path(__file__).with_name("index.json")
"""The generated file."""


@cache
def read_index() -> Mapping[str, Any]:
    """Return the content of the generated file."""
    found: Mapping[str, Any] = json.loads(INDEX.read_bytes())  # noqa: TID251 - generated
    return found


def indexed_command(*path: str) -> click.Command | None:
    """Return a command without a function, only to complete its options and arguments; None if there is none.

    Args:
        path: The names of the command: `archive`, `ls`.
    """
    found: Mapping[str, Any] = {"commands": read_index()["commands"]}
    for name in path:
        found = found.get("commands", {}).get(name, {})
    return _command(path[-1], found) if found else None


def _command(name: str, entry: Mapping[str, Any]) -> click.Command:
    params = [_parameter(one) for one in entry["params"]]
    settings = {"help_option_names": ["-h", "--help"]}
    if "commands" not in entry:
        return click.Command(name, params=params, help=entry["help"], context_settings=settings)
    commands = {one: _command(one, of_one) for one, of_one in entry["commands"].items()}
    kind = _IndexedGroup if entry.get("default") else click.Group
    return kind(name, commands=commands, params=params, help=entry["help"], context_settings=settings)


class _IndexedGroup(click.Group):
    """A group whose first word may be a kind instead of a command."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """See `click.Command.shell_complete`."""
        return [*super().shell_complete(ctx, incomplete), *complete_value("kind", ctx, incomplete, {})]


def _parameter(entry: Mapping[str, Any]) -> click.Parameter:
    value = entry["value"]
    kind: Any = click.Choice(entry["choices"]) if value == "choice" else click.Path() if value == "file" else str
    options: dict[str, Any] = {"type": kind}
    if value not in ("choice", "file", "text", ""):
        options["shell_complete"] = _completer(value, entry.get("name", ""))
    if "opts" in entry:
        flags = {"is_flag": True} if not value else {}
        return click.Option(entry["opts"], help=entry["help"], **({"type": None} if flags else options), **flags)
    return click.Argument([entry["name"]], nargs=entry["nargs"], required=False, **options)


def _completer(value: str, name: str) -> Any:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
        given = {**ctx.params, "words": ctx.params.get(name) or ()}
        return complete_value(value, ctx, incomplete, given)

    return complete
