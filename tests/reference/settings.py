"""Every environment variable."""

import types
import typing
from datetime import timedelta
from pathlib import Path

from pydantic import SecretStr

from shared.adapters.config.settings import OtelSettings, Settings
from shared.adapters.config.timers_address import TimersSettings
from shared.core.values.timing import format_duration
from tests.reference.texts import code, described, fill, paragraphs, table

_TYPES = {
    bool: "`true` or `false`",
    int: "integer",
    str: "text",
    Path: "path",
    SecretStr: "secret text",
    timedelta: "duration",
}


def render():
    """The page."""
    parts = (TimersSettings, OtelSettings, Settings)
    texts = {name: paragraphs(text) for part in parts for name, text in described(part).items()}
    rows = [
        (code(field.alias), texts[name][0], _type_of(field), _default(field), _readers(texts[name]))
        for name, field in Settings.model_fields.items()
    ]
    return fill("settings", settings=table(("Variable", "Meaning", "Type", "Default", "Read by"), rows))


def _readers(texts):
    return texts[1].removeprefix("Read by: ").removesuffix(".")


def _type_of(field):
    asked = field.annotation
    if typing.get_origin(asked) in (typing.Union, types.UnionType):
        asked, *others = (one for one in typing.get_args(asked) if one is not type(None))
        if others:
            return "address"
    if typing.get_origin(asked) is typing.Literal:
        return " or ".join(map(code, typing.get_args(asked)))
    return "list, comma separated" if typing.get_origin(asked) is tuple else _TYPES[asked]


def _default(field):
    if isinstance(field.default, timedelta):
        return code(format_duration(field.default))
    if isinstance(field.default, bool):
        return code(str(field.default).lower())
    return code(field.default) if field.default else ""
