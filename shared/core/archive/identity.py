"""The cluster of a document, and the identity of an archive.

A folder whose volume is not mounted looks like an empty archive, and so does another bucket, or another prefix. What is
stored there is not in the archive that the policy means. So the first put into an empty destination writes a marker
with an id, and the processes of an installation remember the id in their shared state. Each document names the id, too.

The name is a setting with a default, so several clusters can have the same one. The id tells them apart: the uid of
namespace `kube-system`, which exists from the first start of a cluster to its end. The keys have both, `NAME.ID8`, so
that people can read them: ID8 is the first eight digits of the id. The record of each document has the whole id.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from shared.core.values.jsontext import parse_json
from shared.core.values.objects import format_instant, get_text, parse_instant, printable

MARKER = "archive.json"
"""The path of the marker below the root of the archive; no document is there."""

MARKER_BYTES_MAX = 4_096
"""A longer marker is not read."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker of an archive.

    Attributes:
        id: The id, which no other archive has.
        created_at: When the marker was written, by the clock of the process that wrote it.
        cluster: The cluster whose process wrote it, as in a key.
    """

    id: str
    created_at: datetime
    cluster: str

    def to_bytes(self) -> bytes:
        """The marker as JSON."""
        value = {"id": self.id, "createdAt": format_instant(self.created_at), "cluster": self.cluster}
        return json.dumps(value).encode() + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> "Marker":
        """Parse the marker.

        Raises:
            ValueError: It is no JSON, or has no id or no time.
        """
        value = parse_json(data.decode())
        found = get_text(value, "id")
        if not found or printable(found) != found:
            raise ValueError("id: expected text that is not empty")
        return cls(found, parse_instant(get_text(value, "createdAt")), get_text(value, "cluster"))


@dataclass(frozen=True, slots=True)
class KnownArchive:
    """An archive that an installation remembers.

    Attributes:
        id: Its id.
        location: The URL of its destination, without options.
    """

    id: str
    location: str


def find_known(known: Mapping[str, KnownArchive], name: str, location: str) -> str:
    """The id that is expected at a destination; empty if none is remembered.

    If an archive gets another name in the policy, what is remembered of its destination counts.
    """
    if name in known:
        return known[name].id
    return next((one.id for one in known.values() if one.location == location), "")


def describe_mismatch(name: str, location: str, *, expected: str, found: str) -> str:
    """Why an archive is not used; empty if its marker is the expected one.

    Args:
        name: Its name in the policy.
        location: The URL of its destination.
        expected: The id that is remembered; empty if none is, and if the destination has documents.
        found: The id of the marker; empty if there is none.
    """
    if found and found == expected:
        return ""
    what = f"is archive {found}" if found else f"has no marker {MARKER}"
    adopt = f"`kubectl ttl archive adopt --archive {name}`"
    if not expected:
        return (
            f"{location} {what}, and has documents, so it is unknown which archive it is; nothing is stored there, and "
            f"nothing that it has counts as archived; if it is the right one, run {adopt}"
        )
    return (
        f"{location} {what}, expected archive {expected}; the volume may not be mounted, or the URL names another "
        f"destination; nothing is stored there, and nothing that it has counts as archived; mount or restore archive "
        f"{expected}, or run {adopt} to use this one from now on"
    )


HOME_OF_ID = "kube-system"
"""The namespace whose uid is the id of a cluster."""

_SHORT = 8
_ID = re.compile(rf"[0-9a-f]{{{_SHORT}}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")
_PART = re.compile(rf"(?P<name>.+)\.(?P<id>[0-9a-f]{{{_SHORT}}})")


@dataclass(frozen=True, slots=True)
class ArchiveCluster:
    """A cluster that archives.

    Attributes:
        name: Its name in the settings.
        id: The uid of its namespace `kube-system`.
    """

    name: str
    id: str

    @property
    def part(self) -> str:
        """The cluster in a key: `prod.3f2c1a9b`."""
        return f"{self.name}.{self.id[:_SHORT]}"

    def __str__(self) -> str:
        """Return its name and its id, for people."""
        return printable(f"{self.name} (id {self.id})")


def check_cluster_id(uid: str) -> str:
    """Return the uid of `kube-system` if it can be an id in a key.

    Raises:
        ValueError: It is no UUID.
    """
    if not _ID.fullmatch(uid):
        raise ValueError(f"expected a UUID as the uid of namespace {HOME_OF_ID}, got {uid!r}")
    return uid


class ClusterPart(NamedTuple):
    """The cluster in a key.

    Attributes:
        name: The name of the cluster.
        short_id: The first eight digits of its id; empty in a key of a version before ids.
    """

    name: str
    short_id: str

    def is_of(self, cluster_id: str) -> bool:
        """Return whether this can be the cluster with an id."""
        return bool(self.short_id) and cluster_id.startswith(self.short_id)


@dataclass(frozen=True, slots=True)
class SourceCluster:
    """The cluster of a document.

    Attributes:
        part: The cluster in its key.
        id: The whole id, as its record has it; empty in a document of a version before ids.
    """

    part: str
    id: str

    def is_of(self, here: ArchiveCluster | None) -> bool:
        """Return whether this is the cluster; not if its id, or that of the document, is unknown."""
        return here is not None and self.id == here.id

    def is_named_by(self, asked: str) -> bool:
        """Return whether a person has named this cluster, and cannot have meant the present one.

        A name without an id is not enough if the document has an id: the present cluster may have the same name, and a
        machine of a person does not know the name in the settings of the installation.

        Args:
            asked: The name that the person has set; empty for none.
        """
        return asked == self.part

    def __str__(self) -> str:
        """Return its name and its id, for people."""
        name = parse_cluster_part(self.part).name
        return str(ArchiveCluster(name, self.id)) if self.id else printable(f"{name} (id unknown)")


def is_former_part(part: str, *, own: str, cluster_id: str) -> bool:
    """Return whether a cluster in the keys of an archive can be the present one under a former name.

    Args:
        part: The cluster in the keys. Without an id, it can be any cluster.
        own: The present cluster in the keys.
        cluster_id: Its id.
    """
    found = parse_cluster_part(part)
    return part != own and (not found.short_id or found.is_of(cluster_id))


def parse_cluster_part(part: str) -> ClusterPart:
    """Read the cluster in a key. A part without an id is a name."""
    found = _PART.fullmatch(part)
    return ClusterPart(found["name"], found["id"]) if found else ClusterPart(part, "")
