"""Every command, from the tree of the command line."""

import re

import click

from shared.cli.main import main
from tests.reference.outputs import OUTPUTS
from tests.reference.texts import code, fill, joined, paragraphs, table

PROGRAM = "ttl-after-finished"

EXIT_CODES = {
    "0": "The command succeeded.",
    "1": "The command failed, a check of it failed, or a part could not be read, such as the policy in force. "
    "Standard error or the output has the message. For `archive diff`: the objects differ.",
    "2": "An option, an argument or an environment variable is missing or invalid, or two options exclude each other. "
    "A kind that no rule names, and a context that the kubeconfig does not have, are invalid. "
    "If an object, or a file with a policy or with rules, does not exist, the code is 1. For `archive diff`: "
    "the objects cannot be compared.",
    "3": "Only `plan --policy`: more objects would be deleted at once than `--limit`, or its breaker would trip.",
    "130, 143": "Ctrl-C (SIGINT) or SIGTERM ended the command early. `run`, `watch` and `ui` exit with 0 instead.",
}
"""The exit codes of all commands."""


def render():
    """The page."""
    commands = list(walk(main, PROGRAM))
    return fill(
        "cli",
        commands=table(("Command", "What it does"), [(_link(path), _summary(one)) for path, one in commands]),
        exit_codes=table(("Code", "Meaning"), EXIT_CODES.items()),
        schemas=table(
            ("Output", "Schema"),
            [(code(f"{one.command} -o json"), f"[{name}.json](schemas/{name}.json)") for name, one in OUTPUTS.items()],
        ),
        details=joined(part for path, one in commands for part in _section(path, one)),
    )


def walk(group, path):
    """Each command with its words, in the order of the help; a group before its commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        yield f"{path} {name}", one
        if isinstance(one, click.Group):
            yield from walk(one, f"{path} {name}")


def _link(path):
    return f"[`{path.removeprefix(PROGRAM).strip()}`](#{path.replace(' ', '-')})"


def _summary(one):
    return paragraphs(one.help)[0]


def _section(path, one):
    usage = " ".join(one.collect_usage_pieces(click.Context(one)))
    rows = [_row(option) for option in one.params if isinstance(option, click.Option)]
    yield f"## {path}"
    yield f"```text\n{path} {usage}\n```"
    yield from paragraphs(one.help)
    if rows:
        yield table(("Option", "Default", "Meaning"), rows)


def _row(option):
    names, _ = option.get_help_record(click.Context(click.Command("")))
    text, _, default = (option.help or "").partition("Default: ")
    if not default and isinstance(option.default, str) and option.default:
        default = code(option.default)
    if option.required:
        default = "required"
    if option.secondary_opts:
        default = code(option.opts[0] if option.default else option.secondary_opts[0])
    return code(names), _with_code(default.rstrip(".")), _with_code(text)


def _with_code(text):
    """Variables of the environment as code."""
    return re.sub(r"\$[A-Z_]+", r"`\g<0>`", text)
