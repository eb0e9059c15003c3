"""Options that limit what a command acts on: an empty or malformed value is refused, since it would widen the scope."""

import functools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from shared.adapters.config import settings
from shared.adapters.config.settings import SettingsError

_NAMESPACE = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Command(click.Command):
    """A command whose options take no empty value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an empty value, as a shell makes it of an unset variable.

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
    """The type of an option that names a Namespace; any other text must not become part of a request's path.

    Raises:
        BadParameter: No Namespace can have this name.
    """
    if value and not _NAMESPACE.fullmatch(value):
        raise click.BadParameter(f"expected the name of a namespace, got {value!r}")
    return value


def split_kinds(words: str) -> tuple[str, ...]:
    """The words of --kinds, one by one; none for `all`, and where the option is not given.

    Raises:
        ValueError: The option is given and has no word.
    """
    return settings.split_kinds(words) if words else ()


def check_kinds(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """The callback of --kinds.

    Raises:
        BadParameter: The option is given and has no word.
    """
    try:
        split_kinds(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}, got {value!r}") from None
    return value


@contextmanager
def named_by_option(given: Mapping[str, tuple[str, str | None]]) -> Iterator[dict[str, str]]:
    """Options that are given in place of variables; an error about one names the option.

    Args:
        given: Variable to the option and its value, which is None or empty where the option is not given.

    Yields:
        Variable to value, for `read_settings`.

    Raises:
        SettingsError: As raised in the block.
    """
    try:
        yield {variable: value for variable, (_, value) in given.items() if value}
    except SettingsError as error:
        variable, _, told = str(error).partition(": ")
        option, value = given.get(variable, ("", None))
        if not value:
            raise
        raise SettingsError(f"{option}: {told}") from None
