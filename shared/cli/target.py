"""What is meant: an object as `job/x` or `job x`, as kubectl takes them; kinds by the words that people use."""

import click

from shared.adapters.cluster import KubernetesCluster
from shared.core.kinds import Catalogue, KindRule
from shared.core.objects import ObjectRef
from shared.errors import TtlError


def split_target(words: tuple[str, ...], *, or_else: str = "") -> tuple[str, str]:
    """The kind's word, and the name.

    Raises:
        UsageError: Something else than a kind and a name is given.
    """
    parts = words[0].split("/", 1) if len(words) == 1 else list(words)
    if len(parts) != 2 or not all(parts):  # noqa: PLR2004 - kind and name
        raise click.UsageError(f"expected KIND/NAME, for instance job/backup{or_else}")
    return parts[0], parts[1]


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


async def find_rule(cluster: KubernetesCluster, rules: tuple[KindRule, ...], word: str) -> KindRule:
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


async def find_kinds(cluster: KubernetesCluster, known: Catalogue, words: str) -> Catalogue:
    """The kinds that comma separated words name; all that can finish where there are none.

    A word that several kinds share means the one that is served here.

    Raises:
        TtlError: A word names no kind, one that never finishes, or several.
    """
    names = []
    for word in filter(None, map(str.strip, words.split(","))):
        try:
            rules = known.meant_by(word)
        except ValueError as error:
            raise TtlError(f"--kinds: {error}") from None
        several = len({rule.name for rule in rules}) > 1
        names.append((await find_rule(cluster, rules, word)).name if several else word)
    try:
        return known.parse_names(tuple(names))
    except ValueError as error:
        raise TtlError(f"--kinds: {error}") from None


def ref_to(rule: KindRule, namespace: str, name: str) -> ObjectRef:
    """An object of which only the name is known."""
    return ObjectRef(rule.api_version, rule.kind, namespace if rule.scope == "Namespaced" else "", name, "")
