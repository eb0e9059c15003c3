"""The index of the shell completion, from the tree of the command line."""

import json

import click

from shared.cli.main import main
from shared.core.policy.usage import USAGE_KINDS
from tests.builders import shipped_kinds

_VALUES = {"namespace": "namespace", "kinds": "kinds", "context": "context", "target": "object", "words": "object"}
"""What completes an option or an argument, by its name."""

_FILES = {"file", "filename", "kubeconfig"}


def render():
    """The JSON."""
    commands = {name: _command(main.get_command(click.Context(main), name), name) for name in _names(main)}
    return json.dumps({"commands": commands, **_kinds()}, indent=1) + "\n"


def _names(group):
    return group.list_commands(click.Context(group))


def _command(command, path):
    entry = {"help": command.get_short_help_str(80), "params": [_param(one, path) for one in command.params]}
    if isinstance(command, click.Group):
        context = click.Context(command)
        entry["commands"] = {
            name: _command(command.get_command(context, name), f"{path} {name}") for name in _names(command)
        }
    return entry | ({"default": "kind"} if path == "kinds" else {})


def _param(param, path):
    value = _value(param, path)
    choices = {"choices": list(param.type.choices)} if value == "choice" else {}
    if isinstance(param, click.Argument):
        return {"name": param.name, "nargs": param.nargs, "value": value} | choices
    names = [*param.opts, *param.secondary_opts]
    return {
        "opts": names,
        "help": click.Command("", help=param.help or "").get_short_help_str(80),
        "value": value,
    } | choices


def _value(param, path):
    if isinstance(param, click.Option) and param.is_flag:
        return ""
    if isinstance(param.type, click.Choice):
        return "choice"
    if path.partition(" ")[0] == "kinds" and param.name in ("name", "names"):
        return "kind"
    if param.name in _VALUES:
        return _VALUES[param.name]
    return "file" if param.name in _FILES or isinstance(param.type, click.Path) else "text"


def _kinds():
    """Each kind by its plural, or by its full name if several kinds share the plural; then its other names."""
    kinds: dict[str, dict] = {}
    aliases: dict[str, str] = {}
    for rule in (*_built_in_first(shipped_kinds().rules), *USAGE_KINDS.rules):
        name = rule.plural if rule.plural not in kinds or kinds[rule.plural]["group"] == rule.group else rule.name
        known = kinds.setdefault(name, {"group": rule.group, "plural": rule.plural, "versions": []})
        known["versions"] += [one for one in rule.api_versions if one not in known["versions"]]
        known["namespaced"] = rule.scope == "Namespaced"
        for alias in (rule.name, rule.kind.lower(), *rule.short_names):
            aliases.setdefault(alias, name)
    for known in kinds.values():
        del known["group"]
    return {"kinds": dict(sorted(kinds.items())), "aliases": dict(sorted(aliases.items()))}


def _built_in_first(rules):
    """A built-in kind keeps its plural, as in kubectl; its group has no dot."""
    return sorted(rules, key=lambda rule: "." in rule.group)
