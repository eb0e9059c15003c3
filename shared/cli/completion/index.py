"""Complete by a generated index of the commands and options: a completion imports no command.

To import a command takes 0.3 to 0.6 s, and a shell asks at each TAB. `make docs` writes index.json from the commands;
a test fails if it differs from them. The values of options and arguments are kinds of the index, and contexts,
namespaces and objects of the cluster.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:  # it imports the Kubernetes client
    from shared.cli.completion.cluster_values import ClusterNames


INDEX = Path(__file__).with_name("index.json")
"""The generated file."""


@cache
def read_index() -> Mapping[str, Any]:
    """Return the content of the generated file."""
    found: Mapping[str, Any] = json.loads(INDEX.read_bytes())  # noqa: TID251 - generated
    return found


def indexed_command(*path: str) -> click.Command | None:
    """Return a command without a function, only to complete its options and arguments; None if there is none.

    Args:
        path: The names of the command: `archive`, `ls`.
    """
    found: Mapping[str, Any] = {"commands": read_index()["commands"]}
    for name in path:
        found = found.get("commands", {}).get(name, {})
    return _command(path[-1], found) if found else None


def _command(name: str, entry: Mapping[str, Any]) -> click.Command:
    params = [_parameter(one) for one in entry["params"]]
    settings = {"help_option_names": ["-h", "--help"]}
    if "commands" not in entry:
        return click.Command(name, params=params, help=entry["help"], context_settings=settings)
    commands = {one: _command(one, of_one) for one, of_one in entry["commands"].items()}
    kind = _IndexedGroup if entry.get("default") else click.Group
    return kind(name, commands=commands, params=params, help=entry["help"], context_settings=settings)


class _IndexedGroup(click.Group):
    """A group whose first word may be a kind instead of a command."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """See `click.Command.shell_complete`."""
        return [*super().shell_complete(ctx, incomplete), *_complete_value("kind", ctx, incomplete, {})]


def _parameter(entry: Mapping[str, Any]) -> click.Parameter:
    value = entry["value"]
    kind: Any = click.Choice(entry["choices"]) if value == "choice" else click.Path() if value == "file" else str
    options: dict[str, Any] = {"type": kind}
    if value not in ("choice", "file", "text", ""):
        options["shell_complete"] = _completer(value, entry.get("name", ""))
    if "opts" in entry:
        flags = {"is_flag": True} if not value else {}
        return click.Option(entry["opts"], help=entry["help"], **({"type": None} if flags else options), **flags)
    return click.Argument([entry["name"]], nargs=entry["nargs"], required=False, **options)


def _completer(value: str, name: str) -> Any:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
        given = {**ctx.params, "words": ctx.params.get(name) or ()}
        return _complete_value(value, ctx, incomplete, given)

    return complete


def _complete_value(value: str, ctx: click.Context, incomplete: str, given: Mapping[str, Any]) -> list[CompletionItem]:
    """Return what an incomplete value may become; empty if it is unknown.

    Args:
        value: What is completed: `kind`, `kinds`, `namespace`, `context` or `object`.
        ctx: The context of the command.
        incomplete: The begin of the value.
        given: The values of the other options, and the words of the argument before this one.
    """
    del ctx
    return [CompletionItem(one) for one in _COMPLETERS[value](incomplete, given) if one.startswith(incomplete)]


def _kinds(incomplete: str, given: Mapping[str, Any]) -> Sequence[str]:
    del incomplete, given
    return list(read_index()["kinds"])


def _kind_list(incomplete: str, given: Mapping[str, Any]) -> list[str]:
    """Complete the last kind of `jobs,po`."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{one}" for one in (*_kinds("", given), *(() if comma else ("all",)))]


def _objects(incomplete: str, given: Mapping[str, Any]) -> Sequence[str]:
    """Complete the kind first, then a name: of `jobs/b`, or of the second word after `jobs`."""
    words: Sequence[str] = given.get("words") or ()
    kind, slash, _ = incomplete.partition("/")
    if not words and not slash:
        return _kinds(incomplete, given)
    if len(words) > 1 or (words and "/" in words[0]):
        return []
    names = _ask(lambda cluster: cluster.list_names(words[0] if words else kind), given)
    return names if words else [f"{kind}/{name}" for name in names]


def _namespaces(incomplete: str, given: Mapping[str, Any]) -> Sequence[str]:
    del incomplete
    return _ask(lambda cluster: cluster.list_namespaces(), given)


def _contexts(incomplete: str, given: Mapping[str, Any]) -> Sequence[str]:
    del incomplete
    from shared.cli.completion.cluster_values import list_contexts  # noqa: PLC0415 - imports YAML

    return list_contexts(given.get("kubeconfig"))


def _ask(ask: "Callable[[ClusterNames], Awaitable[Sequence[str]]]", given: Mapping[str, Any]) -> Sequence[str]:
    from shared.cli.completion.cluster_values import ask_cluster  # noqa: PLC0415 - imports the Kubernetes client

    return ask_cluster(ask, given)


_COMPLETERS: Mapping[str, Callable[[str, Mapping[str, Any]], Sequence[str]]] = {
    "kind": _kinds,
    "kinds": _kind_list,
    "namespace": _namespaces,
    "context": _contexts,
    "object": _objects,
}


SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, kinds, namespaces and objects in bash, zsh or fish.

    For bash, put `eval "$(ttl-after-finished completion bash)"` into ~/.bashrc. `kubectl ttl` is completed by kubectl's
    own completion, which finds `kubectl_complete-ttl` on the PATH.
    """
    root = ctx.find_root()
    name = "kubectl-ttl" if root.info_name == "kubectl-ttl" else "ttl-after-finished"
    variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"expected one of {', '.join(SHELLS)}, got {shell}")
    click.echo(kind(root.command, {}, name, variable).source())
