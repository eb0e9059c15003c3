"""What is meant: an object as `job/x` or `job x`, as kubectl takes them; kinds by the words that people use."""

from typing import TYPE_CHECKING

import click

from shared.cli.options.scope import split_kinds
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.objects import ObjectRef, printable
from shared.errors import PermanentError, TtlError

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


def split_target(words: tuple[str, ...], *, or_else: str = "") -> tuple[str, str]:
    """The kind's word, and the name.

    Raises:
        UsageError: Something else than a kind and a name is given.
    """
    parts = words[0].split("/") if len(words) == 1 else list(words)
    if len(parts) == 2 and all(parts) and not any("/" in part for part in parts):  # noqa: PLR2004 - kind and name
        return parts[0], parts[1]
    got = printable(" ".join(words))
    several = "; run the command once for each object" if len(words) > 1 else ""
    told = f", got {got!r}{several}" if got else ""
    raise click.UsageError(f"expected KIND/NAME of one object, for instance job/backup{or_else}{told}")


def parse_target(words: tuple[str, ...], known: Catalogue) -> tuple[tuple[KindRule, ...], str]:
    """The rules that the kind's word may mean, and the name.

    Raises:
        TtlError: No kind is named so.
        UsageError: As above.
    """
    word, name = split_target(words)
    try:
        return known.meant_by(word), name
    except ValueError as error:
        raise TtlError(f"{error}; what has no rule is never deleted") from None


async def find_rule(cluster: "KubernetesCluster", rules: tuple[KindRule, ...], word: str) -> KindRule:
    """Of the rules that a word may mean, the one whose kind is served here.

    Raises:
        TtlError: None is, or several are.
    """
    served = await cluster.served(rules)
    if len(served) == 1:
        return served[0]
    names = ", ".join(dict.fromkeys(rule.name for rule in served or rules))
    if served:
        raise TtlError(f"{word.partition('/')[0]!r} is ambiguous here: expected one of {names}")
    raise TtlError(f"this cluster does not serve {names}, or in no version that is known here")


async def find_kinds(
    cluster: "KubernetesCluster", known: Catalogue, words: str, *, named_by: str = "--kinds"
) -> Catalogue:
    """The kinds that comma separated words name; all that can finish where there are none.

    A word that several kinds share means the one that is served here.

    Raises:
        TtlError: A word names no kind, one that never finishes, or several.
    """
    names = []
    for word in split_kinds(words):
        try:
            rules = known.meant_by(word)
        except ValueError as error:
            raise TtlError(f"{named_by}: {error}") from None
        several = len({rule.name for rule in rules}) > 1
        names.append((await find_rule(cluster, rules, word)).name if several else word)
    try:
        return known.parse_names(tuple(names))
    except ValueError as error:
        raise TtlError(f"{named_by}: {error}") from None


async def is_absent(namespace: str, cluster: "KubernetesCluster") -> bool:
    """Whether a namespace does not exist; False where that may not be read.

    Raises:
        TryLaterError: The API server is busy or away.
    """
    try:
        return await cluster.request("GET", f"/api/v1/namespaces/{namespace}", missing_ok=True) is None
    except PermanentError:
        return False


def ref_to(rule: KindRule, namespace: str, name: str) -> ObjectRef:
    """An object of which only the name is known."""
    return ObjectRef(rule.api_version, rule.kind, namespace if rule.scope == "Namespaced" else "", name, "")
