"""Read the objects of a cluster for `plan` and `top`, and decide about them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.cli.input.options import split_kinds
from shared.cli.input.target import find_kinds
from shared.cli.objects.preview import Preview, find_all
from shared.cli.output.printing import counted, warn
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.policy import Policy
from shared.core.values.objects import printable
from shared.evaluation.namespaces_and_owners import list_served, list_unserved
from shared.ports import Archives


@dataclass(frozen=True, slots=True)
class NamedKinds:
    """The kinds that a command reads.

    Attributes:
        words: Kinds, comma separated; empty for all.
        source: What names them: `--kinds` or `TTL_KINDS`.
    """

    words: str
    source: str = "--kinds"

    @classmethod
    def choose(cls, kinds: str) -> "NamedKinds":
        """Return the kinds of the option --kinds, else those of $TTL_KINDS."""
        enabled = () if kinds else read_settings().kinds
        return cls(",".join(enabled), "TTL_KINDS") if enabled else cls(kinds)

    def warn(self) -> None:
        """Warn that $TTL_KINDS hides other kinds."""
        if self.source != "--kinds":
            names = ", ".join(split_kinds(self.words))
            warn(f"only {names}, set by TTL_KINDS; for every kind, set --kinds all")


async def preview_kinds(
    cluster: KubernetesCluster,
    rules: Catalogue,
    policies: Sequence[Policy],
    *,
    named: NamedKinds,
    namespace: str,
    archives: Archives | None,
    on_read: Callable[[int], object] = bool,
) -> tuple[Preview, Sequence[KindRule]]:
    """Decide about every object of the named kinds.

    Args:
        cluster: The cluster.
        rules: All kind rules.
        policies: The policies.
        named: The kinds to read.
        namespace: The only namespace to read; empty for all.
        archives: The archives of the policies; None if they have none.
        on_read: Called with the number of objects of each page.

    Returns:
        The decisions, and the rules of the kinds that the cluster serves.

    Raises:
        TtlError: A name is no kind, or the API server does not say what it serves.
    """
    wanted = await find_kinds(cluster, rules, named.words, named_by=named.source)
    served = await list_served(wanted, cluster=cluster, namespace=namespace)
    preview = await find_all(
        cluster, served, policies=policies, kinds=rules, namespace=namespace, archives=archives, on_read=on_read
    )
    return preview, served


async def read_preview(
    cluster: KubernetesCluster,
    rules: Catalogue,
    policies: Sequence[Policy],
    *,
    named: NamedKinds,
    namespace: str,
    archives: Archives | None,
) -> Preview:
    """Decide about every object of the named kinds, and warn about kinds and objects that could not be read.

    A terminal on standard error shows how many objects have been read.

    Raises:
        TtlError: No kind could be read.
    """
    with counted("objects") as count:
        preview, served = await preview_kinds(
            cluster, rules, policies, named=named, namespace=namespace, archives=archives, on_read=count
        )
    for word in list_unserved(split_kinds(named.words), served):  # the operator named the kind
        warn(f"{word}: not served by {cluster.server}{', or cluster-scoped' if namespace else ''}")
    for rule, error in preview.refused:
        warn(printable(f"{rule.plural}: {error}"))
    for left_out in preview.unreadable:
        warn(printable(f"{left_out.ref}: cannot be read and is kept: {left_out.problem}"))
    if preview.refused and len(preview.refused) == len(served):
        raise preview.refused[0][1]
    return preview
