"""How a command runs: its options, event loop, errors, exit codes and signals."""

import asyncio
import functools
import importlib.util
import logging
import signal
import sys
from collections.abc import Coroutine
from dataclasses import fields
from typing import Any

import click

from shared.adapters.config.settings import SettingsError
from shared.cli.input.options import Options
from shared.cli.output.printing import wrapped
from shared.errors import TtlError


class Command(click.Command):
    """A command: an async function, which gets the values of the shared options in the argument `options`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reject an empty value, which a shell makes of an unset variable.

        Raises:
            BadParameter: The value of an option is empty.
        """
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        for one in self.params:
            value = given.get(one.name or "")
            values = value if isinstance(value, list) else [value]  # an option that may be repeated gives a list
            if isinstance(one, click.Option) and any(isinstance(text, str) and not text.strip() for text in values):
                raise click.BadParameter("expected a value, got an empty one", ctx, one)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Run the command in an event loop; `options` is passed if the command has a shared option."""
        names = [field.name for field in fields(Options) if field.name in ctx.params]
        if names:
            ctx.params["options"] = Options(**{name: ctx.params.pop(name) for name in names})
        run_in_loop(super().invoke(ctx))


command = functools.partial(click.command, cls=Command)
"""In place of `click.command`."""


def run_in_loop(command: Coroutine[Any, Any, None]) -> None:
    """Run a command in an event loop.

    The first SIGINT or SIGTERM cancels the command. If the command handles that and returns, the exit code is 0, else
    128 plus the signal's number. A second signal ends the process.

    Raises:
        ClickException: The command failed: a TtlError is one message and exit code 1, a SettingsError exit code 2.
    """
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_until_signalled(command))
    except TtlError as error:
        raise _as_exit(error) from None
    except ExceptionGroup as group:
        raise _first_ttl_error(group) from None


def _new_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop: uvloop's if it is installed, since it halves the time of many small requests."""
    if importlib.util.find_spec("uvloop") is None:
        loop = asyncio.new_event_loop()
    else:
        from uvloop import new_event_loop  # noqa: PLC0415 - not made for every platform

        loop = new_event_loop()
    loop.set_exception_handler(_report_loop_error)
    return loop


_CLOSED_ALREADY = "the handler is closed"
"""How uvloop ends an error about a connection that it has closed."""


def _report_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of the event loop itself, except one about a connection that this process has closed already.

    If TLS data arrives while a command closes its connections, uvloop logs "Fatal error on SSL protocol" with a stack
    trace, although nothing is lost. If a connection is canceled during its TLS handshake, as at the end of a command,
    uvloop closes it without setting `is_closing`: only the text of the error shows that.
    """
    transport, error = context.get("transport"), context.get("exception")
    if transport is not None and (transport.is_closing() or str(error).endswith(_CLOSED_ALREADY)):
        logging.getLogger("ttl").debug("a closed connection received data", exc_info=error)
        return
    loop.default_exception_handler(context)


async def _until_signalled(command: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(command)
    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        caught.append(number)
        task.cancel()
        loop.remove_signal_handler(number)  # the next signal ends the process

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        sys.exit(128 + caught[0] if caught else 1)  # a canceled command has no result


def _first_ttl_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    expected, unexpected = group.split(TtlError)
    if unexpected is not None or expected is None:
        return group
    error: BaseException = expected
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return _as_exit(error)


class _Exit(click.ClickException):
    """An error whose message is wrapped to the terminal."""

    def format_message(self) -> str:
        """Return the message, as click prints it after `Error: `."""
        return wrapped(self.message, first="Error: ")


class _SettingsExit(_Exit):
    """A command that exits with code 2, as for an invalid option."""

    exit_code = 2


def _as_exit(error: BaseException) -> click.ClickException:
    return (_SettingsExit if isinstance(error, SettingsError) else _Exit)(str(error))
