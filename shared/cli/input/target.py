"""The cluster of a command, and the objects and kinds that its arguments name, as for kubectl: `job/x` or `job x`."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from shared.adapters.config.settings import SettingsError, read_settings
from shared.cli.input.options import Options, known_kinds, split_kinds
from shared.cli.output.printing import inform
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import ObjectRef, printable
from shared.errors import PermanentError, TtlError
from shared.evaluation.namespaces_and_owners import list_served, list_unserved

READ_SECONDS = 5.0
"""How long a command that a person types waits for each answer to a read."""

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster, Memory
    from shared.bootstrap.config import ProcessConfig


@asynccontextmanager
async def connected(
    options: Options, *, memory: "Memory | None" = None, is_server: bool = False
) -> AsyncIterator["KubernetesCluster"]:
    """Connect to the cluster, and disconnect at the end of the block.

    Args:
        options: The options of the command.
        memory: The store for objects that a watch receives.
        is_server: Whether the command runs until it is ended, so that it waits for a slow API server. Another command
            waits `READ_SECONDS` for each answer, and says on standard error that it waits.

    Raises:
        SettingsError: --kinds names an unknown kind.
    """
    from shared.adapters.kubernetes.access import get_access  # noqa: PLC0415 - as below
    from shared.adapters.kubernetes.connect import connect  # noqa: PLC0415 - `--help` needs no HTTP client
    from shared.adapters.kubernetes.requests import Patience  # noqa: PLC0415 - as above

    _check_kinds(options)
    kubeconfig, context = options.kubeconfig, options.context
    access = get_access(read_settings()) if kubeconfig is None and context is None else None
    cluster = await connect(access=access, kubeconfig=kubeconfig, context=context, memory=memory)
    if not is_server:
        cluster.patience = Patience(READ_SECONDS, _reporting_late(cluster.server))
    try:
        yield cluster
    finally:
        await cluster.close()


def _reporting_late(server: str) -> Callable[[], None]:
    """Returns a function that says, when it is called first, that the command waits for the API server."""
    reports = iter((f"waiting for the API server at {server}: no answer yet",))

    def report() -> None:
        for text in reports:
            inform(printable(text))

    return report


def _check_kinds(options: Options) -> None:
    """Check that each word of --kinds names a kind, before a command connects."""
    if words := split_kinds(options.kinds):
        known = known_kinds(options.kinds_dir)
        for word in words:
            _find_named(word, known, "--kinds")


def _find_named(word: str, known: Catalogue, named_by: str) -> tuple[KindRule, ...]:
    try:
        return known.find_by_name(word)
    except ValueError as error:
        raise SettingsError(f"{named_by}: {error}") from None


def split_target(words: tuple[str, ...], *, or_else: str = "") -> tuple[str, str]:
    """Split the arguments into kind and name.

    Raises:
        UsageError: The arguments are not one kind and one name.
    """
    parts = words[0].split("/") if len(words) == 1 else list(words)
    if len(parts) == 2 and all(parts) and not any("/" in part for part in parts):  # noqa: PLR2004 - kind and name
        return parts[0], parts[1]
    got = printable(" ".join(words))
    several = "; run the command once for each object" if len(words) > 1 else ""
    found = f", got {got!r}{several}" if got else ""
    raise click.UsageError(f"expected KIND/NAME of one object, for instance job/backup{or_else}{found}")


def parse_target(words: tuple[str, ...], known: Catalogue) -> tuple[tuple[KindRule, ...], str]:
    """Return the rules that the kind may mean, and the name.

    Raises:
        UsageError: The arguments are not one kind and one name, or no kind has this name.
    """
    word, name = split_target(words)
    try:
        return known.find_by_name(word), name
    except ValueError as error:
        raise click.UsageError(f"{error}; a kind without a rule is never deleted") from None


async def find_rule(cluster: "KubernetesCluster", rules: tuple[KindRule, ...], word: str) -> KindRule:
    """Find the one rule whose kind the cluster serves.

    Raises:
        TtlError: The cluster serves none of the kinds, or several.
    """
    served = await cluster.served(rules)
    if len(served) == 1:
        return served[0]
    names = ", ".join(dict.fromkeys(rule.name for rule in served or rules))
    if served:
        raise TtlError(f"{word.partition('/')[0]!r} is ambiguous on this cluster: expected one of {names}")
    raise TtlError(f"this cluster does not serve {names} in a version that has a rule")


async def find_kinds(
    cluster: "KubernetesCluster", known: Catalogue, words: str, *, named_by: str = "--kinds"
) -> Catalogue:
    """Find the kinds that comma separated words name; without a word, all kinds that can finish.

    If several kinds share a word, it means the one that the cluster serves.

    Raises:
        SettingsError: A word names no kind, or a kind that never finishes.
        TtlError: A word names several served kinds, or none.
    """
    names = []
    for word in split_kinds(words):
        rules = _find_named(word, known, named_by)
        several = len({rule.name for rule in rules}) > 1
        names.append((await find_rule(cluster, rules, word)).name if several else word)
    try:
        return known.parse_names(tuple(names))
    except ValueError as error:
        raise SettingsError(f"{named_by}: {error}") from None


async def is_absent(namespace: str, cluster: "KubernetesCluster") -> bool:
    """Return whether a namespace does not exist; False if the namespace may not be read.

    Raises:
        TryLaterError: The API server is busy or unreachable.
    """
    try:
        return await cluster.request("GET", f"/api/v1/namespaces/{namespace}", missing_ok=True) is None
    except PermanentError:
        return False


def ref_to(rule: KindRule, namespace: str, name: str) -> ObjectRef:
    """Return a reference to an object by its name, without its uid."""
    return ObjectRef(rule.api_version, rule.kind, namespace if rule.scope == "Namespaced" else "", name, "")


def namespace_of(options: Options) -> str:
    """Return the namespace of an object: that of the options, else of the kubeconfig's context, else `default`."""
    if options.namespace:
        return options.namespace
    from shared.adapters.kubernetes.kubeconfig import get_namespace  # noqa: PLC0415 - as above

    return get_namespace(kubeconfig=options.kubeconfig, context=options.context) or "default"


async def name_served(config: "ProcessConfig", cluster: "KubernetesCluster") -> str:
    """Name the enabled kinds that the cluster serves, and the kinds in TTL_KINDS that it does not serve."""
    served = await list_served(config.catalogue, cluster=cluster, namespace=config.namespace)
    groups = Counter(plural for plural, _ in {(rule.plural, rule.group) for rule in served})
    names = dict.fromkeys(rule.plural if groups[rule.plural] == 1 else rule.name for rule in served)
    plurals = ", ".join(names) or "nothing yet"
    absent = list_unserved(config.settings.kinds, served)
    return f"{plurals} (not served yet: {', '.join(absent)})" if absent else plurals
