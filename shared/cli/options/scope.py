"""Options that limit the scope of a command: an empty or malformed value is an error, not a wider scope."""

import functools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from shared.adapters.config import setting_values
from shared.adapters.config.settings import SettingsError

_NAMESPACE = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Command(click.Command):
    """A command that rejects empty option values."""

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


command = functools.partial(click.command, cls=Command)
"""In place of `click.command`."""


def namespace_name(value: str) -> str:
    """Check the name of a Namespace: any other text must not become part of a request's path.

    Raises:
        BadParameter: The value is not a valid name.
    """
    if value and not _NAMESPACE.fullmatch(value):
        raise click.BadParameter(f"expected the name of a namespace, got {value!r}")
    return value


def split_kinds(words: str) -> tuple[str, ...]:
    """Split the value of --kinds; empty for `all`, and if the option is not given.

    Raises:
        ValueError: The option is given and names no kind.
    """
    return setting_values.split_kinds(words) if words else ()


def check_kinds(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Check the value of --kinds.

    Raises:
        BadParameter: The option is given and names no kind.
    """
    try:
        split_kinds(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}, got {value!r}") from None
    return value


@contextmanager
def named_by_option(given: Mapping[str, tuple[str, str | None]]) -> Iterator[dict[str, str]]:
    """Map options to the variables that they replace; an error about a variable names the option instead.

    Args:
        given: For each variable, the option and its value; None or empty if the option is not given.

    Yields:
        The given values by variable, for `read_settings`.

    Raises:
        SettingsError: As raised in the block.
    """
    try:
        yield {variable: value for variable, (_, value) in given.items() if value}
    except SettingsError as error:
        variable, _, problem = str(error).partition(": ")
        option, value = given.get(variable, ("", None))
        if not value:
            raise
        raise SettingsError(f"{option}: {problem}") from None
