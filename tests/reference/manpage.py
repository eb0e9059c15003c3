"""The man page, from the tree of the command line: roff with the macros of man(7)."""

import re
from pathlib import Path

import click

from shared import __version__
from shared.adapters.config.settings import OtelSettings, Settings
from shared.adapters.config.timers_address import TimersSettings
from shared.cli.main import main
from tests.reference.cli import EXIT_CODES, PROGRAM, walk
from tests.reference.texts import described, paragraphs

FOLDER = Path(__file__).parents[2] / "docs" / "man"
PAGE = f"{PROGRAM}.1"
ALIASES = ("kubectl-ttl.1",)


def render():
    """The text of each file, by name."""
    return {PAGE: "\n".join(_lines()) + "\n", **dict.fromkeys(ALIASES, f".so man1/{PAGE}\n")}


def _lines():
    yield f'.TH TTL\\-AFTER\\-FINISHED 1 "" "{PROGRAM} {__version__}" "User Commands"'
    yield ".SH NAME"
    yield f"{_text(PROGRAM)}, kubectl\\-ttl \\- {_text(_lower(paragraphs(main.help or '')[0].rstrip('.')))}"
    yield ".SH SYNOPSIS"
    yield from (f".B {_text(PROGRAM)}", r"\fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]", ".br")
    yield from (".B kubectl ttl", r"\fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(main.help)
    yield from (".PP", "An option takes precedence over its environment variable.")
    yield ".SH COMMANDS"
    for path, command in walk(main, PROGRAM):
        yield from _command(path.removeprefix(f"{PROGRAM} "), command)
    yield ".SH EXIT STATUS"
    for code, meaning in EXIT_CODES.items():
        yield from _tagged(rf"\fB{_text(code)}\fR", meaning)
    yield ".SH ENVIRONMENT"
    parts = (TimersSettings, OtelSettings, Settings)
    texts = {name: paragraphs(text) for part in parts for name, text in described(part).items()}
    for name, field in Settings.model_fields.items():
        yield from _tagged(rf"\fB{_text(field.alias)}\fR", texts[name][0])
    yield from (".SH SEE ALSO", ".BR kubectl (1)")


def _command(path, command):
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    yield f".SS {_text(path)}"
    yield from (rf"\fB{_text(path)}\fR {_text(usage)}", ".PP")
    yield from _paragraphs(command.help)
    for option in command.params:
        if isinstance(option, click.Option):
            names, _ = option.get_help_record(click.Context(click.Command(""))) or ("", "")
            yield from _tagged(rf"\fB{_text(names)}\fR", option.help or "")


def _paragraphs(text):
    for number, one in enumerate(paragraphs(text or "")):
        yield from ([".PP"] if number else [])
        yield _text(one)


def _tagged(tag, text):
    return (".TP", tag, _text(" ".join(text.split())))


def _text(text):
    """Escape what roff reads as a command, and hyphens, which would not be found by a search."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", re.sub(r"`([^`]*)`", r"\\fB\1\\fR", escaped))


def _lower(text):
    return text[:1].lower() + text[1:]
