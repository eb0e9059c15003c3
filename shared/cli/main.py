"""`ttl-after-finished`, also installed as `kubectl-ttl`, so that `kubectl ttl` works."""

import importlib
import logging

import click

from shared import __version__
from shared.adapters.telemetry import configure_logging

COMMANDS = ("run", "watch", "demo", "plan", "explain", "doctor")


class _LazyGroup(click.Group):
    """Imports a command when it is called: `explain -f` needs no server, no client and no loop of theirs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"shared.cli.{cmd_name}"), cmd_name)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ttl-after-finished")
def main() -> None:
    """Every finished Kubernetes object, gone on time."""
    configure_logging("text", level=logging.WARNING)
