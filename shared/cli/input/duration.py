"""An option whose value is a duration."""

from datetime import timedelta

import click

from shared.core.ttl.durations import parse_duration


def duration_option(_context: click.Context, _parameter: click.Parameter, value: str | None) -> timedelta | None:
    """Parse the value of an option that is a duration."""
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
