"""The keys of an archive: one stored object for each archived resource version.

    v1/CLUSTER/NAMESPACE/KIND.VERSION.GROUP/DATE/NAME/UID.RESOURCEVERSION.DIGEST.json.zst
    v1/CLUSTER/NAMESPACE/Pod.v1/DATE/NAME/UID.RESOURCEVERSION.DIGEST.CONTAINER.log.zst

Every part comes from the object itself, so that a process that has just read an object knows under which key exactly
this version of it is stored, without an index. The keys are the index: a LIST of a prefix finds the objects of a
cluster, of a namespace, of a kind, of a day, or of a name, without reading any of them.

- CLUSTER is the name of the cluster, with the first digits of its id: see `shared.core.archive.identity`.
- NAMESPACE is `_` for cluster-scoped objects. GROUP and its dot are left out for the core group.
- DATE is the day of the finish in UTC, or of the creation if the finish time is unknown.
- DIGEST is the SHA-256 of the canonical JSON of the object, in hexadecimal digits.
"""

import re
from dataclasses import dataclass
from datetime import date
from urllib.parse import quote, unquote

LAYOUT = "v1"
"""The version of the layout, the first part of each key."""

CLUSTER_SCOPED = "_"
"""The namespace of cluster-scoped objects in a key."""

SUFFIX = ".json.zst"
"""The end of each key."""

LOG_SUFFIX = ".log.zst"
"""The end of the path of each log."""

_PARTS = 7
_SAFE = "-_."
_PLAIN = re.compile(r"[-_.A-Za-z0-9]*[-_A-Za-z0-9][-_.A-Za-z0-9]*")  # neither . nor ..
_FILE = re.compile(r"(?P<uid>[^/.]+)\.(?P<version>[^/.]+)\.(?P<digest>[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class ArchiveKey:
    """The key of one archived resource version.

    Attributes:
        cluster: The cluster: `prod.3f2c1a9b`.
        namespace: Empty for cluster-scoped objects.
        api_version: `batch/v1`, or `v1` for the core group.
        kind: `Job`.
        day: The day of the finish, or of the creation if the finish time is unknown.
        name: `metadata.name`.
        uid: `metadata.uid`.
        resource_version: `metadata.resourceVersion`.
        digest: The SHA-256 of the canonical JSON, in hexadecimal digits.
    """

    cluster: str
    namespace: str
    api_version: str
    kind: str
    day: date
    name: str
    uid: str
    resource_version: str
    digest: str

    @property
    def version(self) -> tuple[str, ...]:
        """What is stored, without its content: `archive` stores one digest for it.

        The API server has one object under all versions of its API, so the API group stands for them.
        """
        return self.group, self.kind, self.namespace, self.name, self.uid, self.resource_version

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def path(self) -> str:
        """The key as text."""
        uid, version = (_quoted(part).replace(".", "%2E") for part in (self.uid, self.resource_version))
        file = f"{uid}.{version}.{self.digest}{SUFFIX}"
        kind = kind_part(self.api_version, self.kind)
        folder = prefix_of(self.cluster, self.namespace or CLUSTER_SCOPED, kind, self.day.isoformat(), self.name)
        return f"{folder}{file}"


def kind_part(api_version: str, kind: str) -> str:
    """`Job.v1.batch`, or `Pod.v1` for the core group."""
    group, _, version = api_version.rpartition("/")
    return f"{kind}.{version}.{group}" if group else f"{kind}.{version}"


def prefix_of(*parts: str) -> str:
    """The prefix of the keys that begin with these parts after the layout's version, with a slash at its end."""
    return "".join(f"{_quoted(part)}/" for part in (LAYOUT, *parts))


def log_path(key: ArchiveKey, container: str) -> str:
    """The path of the log of a container, beside the document of its Pod."""
    return f"{key.path.removesuffix(SUFFIX)}.{_quoted(container)}{LOG_SUFFIX}"


def unquote_part(part: str) -> str:
    """The cluster, namespace, kind, day or name in one part of a key."""
    return unquote(part)


def is_log(path: str) -> bool:
    """Whether a path has the form of `log_path`."""
    try:
        parse_log_path(path)
    except ValueError:
        return False
    return True


def parse_log_path(path: str) -> tuple[ArchiveKey, str]:
    """The key of a Pod and the name of a container, from the path of its log.

    Raises:
        ValueError: The path has not the form of `log_path`.
    """
    stem, _, container = path.removesuffix(LOG_SUFFIX).rpartition(".")
    if not (path.endswith(LOG_SUFFIX) and container):
        raise ValueError(f"expected the path of a log, which ends with .CONTAINER{LOG_SUFFIX}, got {path!r}")
    return parse_key(stem + SUFFIX), unquote(container)


def key_of_log(path: str) -> ArchiveKey:
    """The key of the Pod of a log; see `parse_log_path`."""
    return parse_log_path(path)[0]


def container_of(path: str) -> str:
    """`POD/CONTAINER` of the path of a log; the path itself if it has another form."""
    try:
        key, container = parse_log_path(path)
    except ValueError:
        return path
    return f"{key.name}/{container}"


def parse_key(path: str) -> ArchiveKey:
    """Parse a key.

    Raises:
        ValueError: It is not a key of this layout.
    """
    expected = f"expected {LAYOUT}/CLUSTER/NAMESPACE/KIND.VERSION.GROUP/DATE/NAME/UID.VERSION.DIGEST{SUFFIX}"
    parts = path.split("/")
    file = _FILE.fullmatch(parts[-1].removesuffix(SUFFIX)) if path.endswith(SUFFIX) else None
    if file is None or len(parts) != _PARTS or parts[0] != LAYOUT:
        raise ValueError(f"{expected}, got {path!r}")
    cluster, namespace, kind, day, name = (unquote(part) for part in parts[1:-1])
    kind, _, version = kind.partition(".")
    version, _, group = version.partition(".")
    if not (kind and version):
        raise ValueError(f"{expected}, got {path!r}")
    return ArchiveKey(
        cluster=cluster,
        namespace="" if namespace == CLUSTER_SCOPED else namespace,
        api_version=f"{group}/{version}" if group else version,
        kind=kind,
        day=date.fromisoformat(day),
        name=name,
        uid=unquote(file["uid"]),
        resource_version=unquote(file["version"]),
        digest=file["digest"],
    )


def _quoted(part: str) -> str:
    """A part without a slash and without characters that a file system or a store treats specially."""
    if _PLAIN.fullmatch(part):  # nearly every part, and five times as fast
        return part
    return quote(part, safe=_SAFE).replace("~", "%7E") if part not in (".", "..") else part.replace(".", "%2E")
