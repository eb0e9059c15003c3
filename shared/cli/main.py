"""`ttl-after-finished`, also installed as `kubectl-ttl`, so that `kubectl ttl` works."""

import logging
import sys
from typing import Any

import click

from shared import __version__
from shared.adapters.config.settings import log_form
from shared.adapters.telemetry.logs import configure_logging, is_json
from shared.cli.input.lazy_group import LazyGroup
from shared.cli.output.streams import OutputError, explain_output, prepare_errors, prepare_output

COMMANDS = {
    "run": "run:run",
    "watch": "watch:watch",
    "demo": "demo:demo",
    "plan": "plan:plan",
    "explain": "explain:explain",
    "references": "references:references",
    "unused": "unused:unused",
    "stop": "brake:stop",
    "start": "brake:start",
    "hold": "hold:hold",
    "release": "hold:release",
    "set": "set_command:set_ttl",
    "archive": "archive.group:archive",
    "timers": "timers.group:timers",
    "kinds": "kinds:kinds",
    "doctor": "doctor:doctor",
}
"""Each command with its module and function."""


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


def _end(code: object) -> None:
    """Exit with the code of a command, as click does in standalone mode."""
    sys.exit(code if isinstance(code, int) else 0)


@click.group(
    cls=_Main, package="shared.cli", modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="ttl-after-finished")
def main() -> None:
    """Delete finished Kubernetes objects of any kind after a TTL."""
