"""Which rights the code needs, on what and for whom: the one table, which the shipped roles are held to.

expire      get what a timer is about, delete it; list those beside it where a policy keeps the newest of a group
sweep       list everything, delete what is due; get where a TTL can only be an annotation, since the list is then
of metadata only
source      what an ApiServerSource checks before it starts: get, list, watch
watch       the same without get
standalone  all of these, in one process

Whoever decides reads the namespaces, too; the sweep lists them. Whoever deletes lists the APIServices: the kinds of an
aggregated API server are kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared.core.kinds.rule import KindRule
from shared.installation.defaults import LEASE
from shared.safeguards.state_schema import NAME as STATE

EVERY_KIND = {
    "expire": ("get", "list", "delete"),
    "sweep": ("list", "delete"),
    "source": ("get", "list", "watch"),
    "watch": ("list", "watch"),
    "standalone": ("get", "list", "watch", "delete"),
}
NAMESPACES = {"expire": ("get",), "sweep": ("get", "list"), "watch": ("get",), "standalone": ("get", "list")}

DELETERS = ("expire", "sweep", "standalone")
"""Who decides about objects: they read owners, and tell by Events."""

OWNERS: Mapping[str, tuple[str, str]] = {
    "pods": ("batch", "jobs"),
    "taskruns.tekton.dev": ("tekton.dev", "pipelineruns"),
    "customruns.tekton.dev": ("tekton.dev", "pipelineruns"),
    "jobsets.jobset.x-k8s.io": ("trainer.kubeflow.org", "trainjobs"),
    "sandboxes.agents.x-k8s.io": ("extensions.agents.x-k8s.io", "sandboxclaims"),
    "trials.kubeflow.org": ("kubeflow.org", "experiments"),
    "suggestions.kubeflow.org": ("kubeflow.org", "experiments"),
    "orders.acme.cert-manager.io": ("cert-manager.io", "certificaterequests"),
    "challenges.acme.cert-manager.io": ("acme.cert-manager.io", "orders"),
    "datauploads.velero.io": ("velero.io", "backups"),
    "podvolumebackups.velero.io": ("velero.io", "backups"),
    "datadownloads.velero.io": ("velero.io", "restores"),
    "podvolumerestores.velero.io": ("velero.io", "restores"),
}
"""Of kinds that stay while their owner works: the owner, which is read. One that may not be read counts as working."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource.

    Attributes:
        group: Empty for the core group.
        namespace: Empty for all of them.
        name: Empty for all of them.
    """

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""


_OF_DELETERS = {Right("", "events", "create"), Right("apiregistration.k8s.io", "apiservices", "list")}


def needs_of(role: str, rules: Iterable[KindRule]) -> frozenset[Right]:
    """What an account of this role needs for the kinds.

    Args:
        role: A key of EVERY_KIND; anything else needs nothing.
        rules: The enabled kinds.
    """
    needed = {Right("", "namespaces", verb) for verb in NAMESPACES.get(role, ())}
    for rule in rules:
        group = rule.api_version.rpartition("/")[0]
        needed |= {Right(group, rule.plural, verb) for verb in EVERY_KIND.get(role, ())}
        if role == "sweep" and rule.ttl is None:
            needed.add(Right(group, rule.plural, "get"))
        if role in DELETERS:
            needed |= {Right(*OWNERS[rule.name], "get")} if rule.name in OWNERS else set()
    return frozenset(needed | (_OF_DELETERS if role in DELETERS else set()))


def state_needs(namespace: str) -> frozenset[Right]:
    """What who deletes needs for what must outlive it: the ConfigMap is shipped, so nobody creates one."""
    return frozenset(Right("", "configmaps", verb, namespace, STATE) for verb in ("get", "update"))


def lease_needs(namespace: str) -> frozenset[Right]:
    """What `standalone` needs to be the only one."""
    group, resource = "coordination.k8s.io", "leases"
    own = {Right(group, resource, verb, namespace, LEASE) for verb in ("get", "update")}
    return frozenset(own | {Right(group, resource, "create", namespace)})
