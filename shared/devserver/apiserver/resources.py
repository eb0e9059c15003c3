"""The served resources: the built-in ones, and those that CustomResourceDefinitions add."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of one API version.

    Attributes:
        group: The API group; empty for the core group.
        version: The API version.
        plural: The name in the path.
        kind: The name in the object.
        namespaced: Whether its objects are in namespaces.
        has_status: Whether it has a status subresource; if so, other writes ignore the status.
        counts_generations: Whether a change outside metadata and status increases metadata.generation.
        custom: Whether a CustomResourceDefinition defines it.
        answers_with_object: Whether DELETE answers with the object, even if the object is gone.
        default_propagation: The policy of a DELETE without propagationPolicy.
        initial_status: The status of a new object; None for no status.
        selectable: The fields for a fieldSelector besides metadata.name and metadata.namespace.
        short_names: The short names for kubectl.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = False
    counts_generations: bool = False
    custom: bool = False
    answers_with_object: bool = False
    default_propagation: str = "Background"
    initial_status: Mapping[str, Any] | None = field(default=None, compare=False)
    selectable: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """The apiVersion in the object: `batch/v1`, `v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """The name in messages, the same for all versions: `jobs.batch`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """The kind in messages: `Job.batch`, `Pod`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


NAMESPACES = Resource(
    "", "v1", "namespaces", "Namespace", namespaced=False, has_status=True, answers_with_object=True,
    initial_status={"phase": "Active"}, short_names=("ns",),
)  # fmt: skip
PODS = Resource(
    "", "v1", "pods", "Pod", has_status=True, counts_generations=True, answers_with_object=True,
    initial_status={"phase": "Pending"}, selectable=("status.phase", "spec.nodeName"), short_names=("po",),
)  # fmt: skip
EVENTS = Resource(
    "", "v1", "events", "Event", short_names=("ev",),
    selectable=(*(f"involvedObject.{f}" for f in ("apiVersion", "kind", "name", "namespace", "uid")), "reason", "type"),
)  # fmt: skip
EVENTS_V1 = Resource(
    "events.k8s.io", "v1", "events", "Event", short_names=("ev",),
    selectable=("reason", "type", "reportingController", "regarding.name", "regarding.uid"),
)  # fmt: skip
"""A real API server shows one Event in both groups; here each group has its own."""
SECRETS = Resource("", "v1", "secrets", "Secret", selectable=("type",))
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
RESOURCE_QUOTAS = Resource(
    "", "v1", "resourcequotas", "ResourceQuota", has_status=True, initial_status={}, answers_with_object=True,
    short_names=("quota",),
)  # fmt: skip
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",))
JOBS = Resource(
    "batch", "v1", "jobs", "Job", has_status=True, counts_generations=True, default_propagation="Orphan",
    initial_status={}, selectable=("status.successful",),
)  # fmt: skip
CRON_JOBS = Resource(
    "batch", "v1", "cronjobs", "CronJob", has_status=True, counts_generations=True,
    initial_status={}, short_names=("cj",),
)  # fmt: skip
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False, has_status=True, counts_generations=True, initial_status={}, short_names=("crd", "crds"),
)  # fmt: skip
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)

BUILT_IN = (
    NAMESPACES, PODS, EVENTS, EVENTS_V1, SECRETS, CONFIG_MAPS, RESOURCE_QUOTAS, SERVICE_ACCOUNTS, JOBS, CRON_JOBS,
    LEASES, CUSTOM_RESOURCE_DEFINITIONS, ACCESS_REVIEWS,
)  # fmt: skip


class Registry:
    """The resources that are served now, by their path and by their kind."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str], Resource] = {}
        for resource in BUILT_IN:
            self.add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_path.values()))

    def add(self, resource: Resource) -> None:
        """Serve a resource; it replaces a resource at the same path."""
        self._by_path[resource.api_version, resource.plural] = resource
        self._by_kind[resource.api_version, resource.kind] = resource

    def remove(self, resource: Resource) -> None:
        """Stop serving a resource."""
        self._by_path.pop((resource.api_version, resource.plural), None)
        self._by_kind.pop((resource.api_version, resource.kind), None)

    def find(self, api_version: str, plural: str) -> Resource | None:
        """Return the resource at a path."""
        return self._by_path.get((api_version, plural))

    def find_kind(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of an object's kind."""
        return self._by_kind.get((api_version, kind))

    def serves(self, api_version: str) -> bool:
        """Whether any resource of this group and version is served."""
        return any(resource.api_version == api_version for resource in self)


def custom_resources(definition: Object) -> list[Resource]:
    """Return the resources of a CustomResourceDefinition, one for each served version."""
    spec = definition["spec"]
    return [
        Resource(
            spec["group"],
            version["name"],
            spec["names"]["plural"],
            spec["names"]["kind"],
            namespaced=spec.get("scope", "Namespaced") == "Namespaced",
            has_status="status" in version.get("subresources", {}),
            counts_generations=True,
            custom=True,
            short_names=tuple(spec["names"].get("shortNames", ())),
        )
        for version in spec["versions"]
        if version.get("served", True)
    ]
