"""`ttl-after-finished`, also installed as `kubectl-ttl`, so that `kubectl ttl` works."""

import importlib
import logging

import click

from shared import __version__
from shared.adapters.telemetry import configure_logging

COMMANDS = {
    "run": "run:run",
    "watch": "watch:watch",
    "demo": "demo:demo",
    "plan": "plan:plan",
    "explain": "explain:explain",
    "hold": "hold:hold",
    "release": "hold:release",
    "set": "hold:set_ttl",
    "kinds": "kinds:kinds",
    "doctor": "doctor:doctor",
}
"""Each command, and the module and function that it is."""


class _LazyGroup(click.Group):
    """Imports a command when it is called: `explain -f` needs no server, no client and no loop of theirs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"shared.cli.{module}"), function)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ttl-after-finished")
def main() -> None:
    """Every finished Kubernetes object, gone on time."""
    configure_logging("text", level=logging.WARNING)
