"""Names of the cluster for a completion: in a short time, and without a word if they cannot be read."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from shared.adapters.kubernetes import kubeconfig as _client  # noqa: F401 - loaded before the time runs
from shared.adapters.kubernetes.bodies import METADATA_LIST
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.cli.completion.index import read_index
from shared.cli.input.options import Options
from shared.cli.input.target import connected, namespace_of
from shared.core.values.objects import get_text, list_mappings

SECONDS_MAX = 2
"""How long a completion waits for the cluster, after it has loaded its client."""

OFFERED_MAX = 500
"""The most names that are offered."""


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """Lists names of a cluster.

    Attributes:
        cluster: The cluster.
        options: The options that choose it, and a namespace.
    """

    cluster: KubernetesCluster
    options: Options

    async def list_namespaces(self) -> Sequence[str]:
        """Return the names of the namespaces."""
        answer = await self.cluster.request("GET", f"/api/v1/namespaces?limit={OFFERED_MAX}", accept=METADATA_LIST)
        return [get_text(one, "metadata.name") for one in list_mappings(answer and answer.body, "items")]

    async def list_names(self, word: str) -> Sequence[str]:
        """Return the names of the objects of a kind of the index; of each, only its metadata is read."""
        index = read_index()
        kind = index["kinds"][index["aliases"].get(word.lower(), word.lower())]
        namespace = f"namespaces/{namespace_of(self.options)}/" if kind["namespaced"] else ""
        for version in kind["versions"]:
            path = f"{'apis' if '/' in version else 'api'}/{version}/{namespace}{kind['plural']}?limit={OFFERED_MAX}"
            answer = await self.cluster.request("GET", f"/{path}", accept=METADATA_LIST, missing_ok=True)
            if answer is not None:
                return [get_text(one, "metadata.name") for one in list_mappings(answer.body, "items")]
        return ()


def ask_cluster(ask: Callable[[ClusterNames], Awaitable[Sequence[str]]], given: Mapping[str, Any]) -> Sequence[str]:
    """Return the names that a cluster lists; empty after SECONDS_MAX, and after each error.

    Args:
        ask: Asks for the names.
        given: The values of the options --kubeconfig, --context and --namespace.
    """
    options = Options(
        kubeconfig=given.get("kubeconfig"), context=given.get("context"), namespace=given.get("namespace") or ""
    )

    async def work() -> Sequence[str]:
        async with asyncio.timeout(SECONDS_MAX), connected(options) as cluster:
            return await ask(ClusterNames(cluster, options))

    with _silent(), contextlib.suppress(Exception):
        return asyncio.run(work())
    return ()


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """End the process after SECONDS_MAX if a credential plugin blocks it, and write nothing to standard error."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX + 0.5)
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)
        signal.setitimer(signal.ITIMER_REAL, 0)
        logging.disable(logging.NOTSET)


def list_contexts(kubeconfig: str | None) -> Sequence[str]:
    """Return the names of the contexts of a kubeconfig, else of $KUBECONFIG or ~/.kube/config; empty if unreadable."""
    given = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"  # noqa: TID251 - not a setting of ours
    names: dict[str, None] = {}
    for file in given.split(os.pathsep):
        with contextlib.suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
            content = yaml.load(Path(file).expanduser().read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe one
            names |= dict.fromkeys(get_text(one, "name") for one in list_mappings(content, "contexts"))
    return list(names)
