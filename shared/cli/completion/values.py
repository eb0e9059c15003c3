"""The values that a completion offers: kinds of the index, and contexts, namespaces and objects of the cluster."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:  # it imports the Kubernetes client
    from shared.cli.completion.cluster_values import ClusterNames


def complete_value(value: str, ctx: click.Context, incomplete: str, given: Mapping[str, Any]) -> list[CompletionItem]:
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
    from shared.cli.completion.index import read_index  # noqa: PLC0415 - it imports this module

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
