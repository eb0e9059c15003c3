"""Read what an import needs: from files, or from the cluster, without a write."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from shared.adapters.config.yaml_file import SafeLoader, describe_error
from shared.cli.importers.imported import ImportedConfigError, Source, expect_mapping
from shared.cli.input.documents import open_file, read_documents
from shared.core.kinds.catalogue import Catalogue
from shared.evaluation.served import list_served
from shared.installation.inventory import read_list

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster


@dataclass(frozen=True, slots=True)
class ClusterReads:
    """What an import reads from the cluster.

    Attributes:
        collections: `apiVersion/plural`, such as `apps/v1/deployments`, each with the parameters of the LIST.
        every_kind: The parameters of the LIST of every kind that can finish; None if no such object is read.
    """

    collections: tuple[tuple[str, str, dict[str, str]], ...] = ()
    every_kind: dict[str, str] | None = None


def read_files(files: Sequence[str]) -> Iterator[Source]:
    """Yield all documents of files; `-` is standard input.

    Raises:
        TtlError: A file cannot be read.
    """
    for file in files:
        with sys.stdin if file == "-" else open_file(file) as stream:
            name = "standard input" if file == "-" else Path(file).name
            for document in read_documents(stream, name):
                yield Source(document, name)


async def read_cluster(
    cluster: "KubernetesCluster", wanted: ClusterReads, kinds: Catalogue
) -> tuple[list[Source], list[str]]:
    """Read objects of a cluster.

    Returns:
        The objects, and why some could not be read.
    """
    lists = [(_path(version, plural), kind_of, query) for (version, plural), kind_of, query in _plain(wanted)]
    if wanted.every_kind is not None:
        finishing = Catalogue(tuple(rule for rule in kinds.rules if not rule.never_finishes))
        served = await list_served(finishing, cluster=cluster)
        lists += [(_path(rule.api_versions[0], rule.plural), rule.kind, wanted.every_kind) for rule in served]
    found: list[Source] = []
    problems: list[str] = []
    for path, kind, query in lists:
        listed = await read_list(cluster, path, **query)
        version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
        # A LIST leaves out apiVersion and kind of its items.
        found += [Source({"apiVersion": version, "kind": kind, **item}, cluster.server) for item in listed.items]
        if listed.problem:
            problems.append(listed.problem)
    # An API server may serve a kind in several versions.
    return list({one.place: one for one in reversed(found)}.values())[::-1], problems


def _plain(wanted: ClusterReads) -> Iterator[tuple[tuple[str, str], str, dict[str, str]]]:
    for what, kind, query in wanted.collections:
        version, _, plural = what.rpartition("/")
        yield (version, plural), kind, query


def _path(version: str, plural: str) -> str:
    return f"/{'apis' if '/' in version else 'api'}/{version}/{plural}"


def parse_embedded(text: Any, place: str) -> dict[str, Any]:
    """Parse the YAML in a value of a ConfigMap.

    Raises:
        ImportedConfigError: The value is not the YAML of a mapping.
    """
    if not isinstance(text, str):
        raise ImportedConfigError(f"{place}: expected a text with YAML, got {text!r}")
    try:
        document = yaml.load(text, SafeLoader)  # noqa: S506 - it is a safe loader
    except yaml.YAMLError as error:
        raise ImportedConfigError(f"{place}: {describe_error(error, 1)}") from None
    return expect_mapping({} if document is None else document, place)
