"""The archive of the demo: a folder, from which one object is restored after it was deleted."""

import json
from pathlib import Path

from shared.adapters.archive.open_archive import open_archive
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.creation import ObjectCreation
from shared.core.archive.cluster import ArchiveCluster
from shared.core.kinds.catalogue import Catalogue
from shared.core.objects import get_text
from shared.usecases.archives.search import ArchiveSelection, Wanted, choose, find_versions
from shared.usecases.restore import RestoreOptions, restore

ARCHIVE = "main"
"""The name of the archive, also in the annotation of the object."""


def write_policy(folder: Path) -> Path:
    """Write a policy with an archive in a folder; return its file."""
    path = folder / "policy.yaml"
    archives = {ARCHIVE: {"url": archive_url(folder)}}
    path.write_text(json.dumps({"archives": archives}))
    return path


def archive_url(folder: Path) -> str:
    """Return the URL of the archive."""
    return f"file://{folder}/archive"


async def restore_one(
    url: str, cluster: KubernetesCluster, kinds: Catalogue, *, place: tuple[str, str, str], here: ArchiveCluster
) -> str:
    """Create an archived object again, suspended, as `archive restore --suspended` does; return its new uid.

    Args:
        url: The archive.
        cluster: Where the object is created.
        kinds: All known kinds.
        place: The namespace, the kind and the name of the object.
        here: The cluster, as the archive names it.

    Raises:
        TtlError: It is not in the archive, or cannot be created.
    """
    namespace, kind, name = place
    archive = open_archive(ARCHIVE, url)
    selection = ArchiveSelection(here.part, (namespace,), lambda _, one: one == kind, name)
    found = await find_versions(archive, selection)
    chosen = choose(found, Wanted(), what=f"{kind} {namespace}/{name}")
    document = await archive.read(chosen.stored.key)
    options = RestoreOptions(suspended=True, archive=ARCHIVE)
    (restored,) = await restore([document], options, creator=ObjectCreation(cluster), kinds=kinds)
    return get_text(restored.snapshot.obj, "metadata.uid")
