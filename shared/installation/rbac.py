"""The RBAC table: the rights that each role of the code needs. A test compares the shipped ClusterRoles with it.

expire      get the object of a timer and delete it; list the kind if a policy ranks the objects of a group
enforce     get the object of a timer; patch it, if objects of the kind are stopped by a patch; list the kind if the
            breaker of a policy has a share
archive     get the object of a timer; list and get its children, and get the logs of Pods. It can write no object but
            Events of the journal, and the shared state, which has the ids of the archives
sweep       list all objects and delete those that are due; get an object, if the list has metadata only, or if it is
            a child of one that is due
usage       nothing on the kinds; its rights on Secrets, ConfigMaps and what refers to them are in `object_needs`
source      get, list, watch: an ApiServerSource checks these rights before it starts
watch       list, watch: our own watch needs no get
ui          list all objects, for the page
standalone  all of these, in one process

Each role that evaluates objects also needs `get` on namespaces; `sweep` and `standalone` list them too. The keys of an
archive have the uid of namespace `kube-system`. Each role that deletes or stops objects lists the APIServices, because
objects of an aggregated API server are kept. Each role that deletes by a TTL also needs `get` on the kinds from which
objects inherit their TTL. It lists the ResourceQuotas: a policy may make objects due before their TTL is over while a
quota is used above a percentage.

Each role that deletes objects gets and lists their children: a child that is held, or that a policy has
archived, keeps its owner. These are the kinds that the kind rule names, and each enabled kind that a policy archives.

`enforce` deletes only objects that ask for it (`on-deadline: delete`), and only if an operator grants this right: see
`delete_at_deadline`.

`usage` marks and deletes Secrets and ConfigMaps. It lists the objects of each kind that may refer to them: all kinds of
Kubernetes itself, and the kinds of the carrier rules. Of other kinds, the component `usage-all-kinds` grants `list`.

The right to list Secrets cannot be limited to their metadata, nor to some namespaces: a pass needs all names. The
other verbs on Secrets and ConfigMaps are in a separate role, which a RoleBinding may grant in some namespaces only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shared.core.kinds.rule import KindRule
from shared.core.kinds.ttl_and_deadline import TtlSourceKind
from shared.installation.place import LEASE
from shared.safeguards.state_schema import NAME as STATE

EVERY_KIND = {
    "expire": ("get", "list", "delete"),
    "enforce": ("get", "list"),
    "archive": ("get",),
    "sweep": ("get", "list", "delete"),
    "source": ("get", "list", "watch"),
    "watch": ("list", "watch"),
    "ui": ("list",),
    "standalone": ("get", "list", "watch", "delete"),
}
NAMESPACES = {
    "expire": ("get",),
    "enforce": ("get",),
    "archive": ("get",),
    "sweep": ("get", "list"),
    "watch": ("get",),
    "usage": ("get", "list"),
    "standalone": ("get", "list"),
}

WRITERS = ("expire", "enforce", "sweep", "standalone")
"""The roles that delete or stop objects: they also read owners."""

DELETERS = ("expire", "sweep", "standalone")
"""The roles that delete objects by their TTL."""

REPORTERS = (*WRITERS, "usage")
"""The roles that report by an Event that a safeguard acts."""

STATEFUL = (*REPORTERS, "archive")
"""The roles that read and write the shared state: the counts of deletions, and the ids of the archives."""

STOPPERS = ("enforce", "standalone")
"""The roles that stop objects."""

ARCHIVERS = ("archive", "standalone")
"""The roles that archive objects with their children."""

JOURNALISTS = (*REPORTERS, "archive")
"""The roles that record in the journal what they did."""

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
"""The owner kind of each kind whose objects are kept while their owner is unfinished.

The owner is read. If the owner cannot be read, it counts as unfinished.
"""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource.

    Attributes:
        group: The API group; empty for the core group.
        resource: The plural of the kind.
        verb: The verb, such as `get`.
        namespace: The namespace; empty for all namespaces.
        name: The object's name; empty for all objects.
        read_for: The kind whose manifests grant the right, since its objects inherit a TTL from the resource, or have
            it as children; empty for other rights.
    """

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""
    read_for: str = field(default="", compare=False)


_OF_WRITERS = {Right("apiregistration.k8s.io", "apiservices", "list")}
_OF_REPORTERS = {Right("", "events", "create")}
OF_PROOFS = frozenset(
    Right("admissionregistration.k8s.io", plural, "get")
    for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
)
"""What `expire` needs beside, if it deletes objects without a read: it checks the delete guard."""

_OF_JOURNALISTS = {Right("events.k8s.io", "events", "create")}
_OF_DELETERS = {Right("", "resourcequotas", "list")}


def needs_of(role: str, rules: Iterable[KindRule]) -> frozenset[Right]:
    """Return the rights that an account of a role needs for the kinds.

    Args:
        role: A key of EVERY_KIND or NAMESPACES; any other role needs no rights.
        rules: The rules of the enabled kinds.
    """
    needed = {Right("", "namespaces", verb) for verb in NAMESPACES.get(role, ())}
    for rule in rules:
        group = rule.group
        needed |= {Right(group, rule.plural, verb) for verb in EVERY_KIND.get(role, ())}
        if role in STOPPERS and rule.deadline and rule.deadline.stop:
            needed.add(Right(group, rule.plural, "patch"))
        if role in ARCHIVERS:
            needed |= _of_children(rule) | _of_logs(rule)
        if role in WRITERS:
            needed |= {Right(*OWNERS[rule.name], "get")} if rule.name in OWNERS else set()
        if role in DELETERS:
            needed |= _of_children(rule)
            needed |= {Right(one.group, one.plural, "get", read_for=rule.name) for one in _ttl_sources(rule)}
    needed |= _OF_DELETERS if role in DELETERS else set()
    needed |= _OF_JOURNALISTS if role in JOURNALISTS else set()
    needed |= _OF_REPORTERS if role in REPORTERS else set()
    return frozenset(needed | (_OF_WRITERS if role in WRITERS else set()))


def delete_at_deadline(rules: Iterable[KindRule]) -> frozenset[Right]:
    """Return the rights that `enforce` needs to delete objects at their deadline; they are an opt-in."""
    ending = [rule for rule in rules if rule.deadline]
    rights = {Right(rule.group, rule.plural, "delete") for rule in ending}
    return frozenset(rights.union(*map(_of_children, ending)))


def _of_children(rule: KindRule) -> set[Right]:
    """The rights to read the children of an object."""
    children = {(child.group, child.plural) for child in rule.children}
    return {Right(*child, verb, read_for=rule.name) for child in children for verb in ("get", "list")}


def _of_logs(rule: KindRule) -> set[Right]:
    """The right to read the logs of an object, or of its children."""
    named = {(child.group, child.plural) for child in rule.children} | {(rule.group, rule.plural)}
    return {Right("", "pods/log", "get", read_for=rule.name)} if ("", "pods") in named else set()


def _ttl_sources(rule: KindRule) -> tuple[TtlSourceKind, ...]:
    """The kinds from which objects of a kind inherit their TTL."""
    return rule.ttl.inherited.kinds if rule.ttl and rule.ttl.inherited else ()


def state_needs(namespace: str) -> frozenset[Right]:
    """Return the rights on the ConfigMap of the shared state; `create` is not needed, as the manifests contain it."""
    return frozenset(Right("", "configmaps", verb, namespace, STATE) for verb in ("get", "update"))


def lease_needs(namespace: str) -> frozenset[Right]:
    """Return the rights on the Lease that makes `standalone` the only active process."""
    group, resource = "coordination.k8s.io", "leases"
    own = {Right(group, resource, verb, namespace, LEASE) for verb in ("get", "update")}
    return frozenset(own | {Right(group, resource, "create", namespace)})


OBJECTS_ROLE = "ttl-after-finished-usage-objects"
"""The ClusterRole with `OBJECT_VERBS` on Secrets and ConfigMaps."""

OBJECT_VERBS = ("get", "patch", "delete")
"""The verbs on Secrets and ConfigMaps beside `list`; `get` reads what a DELETE conflicts with, and what is archived."""


def object_needs(rules: Iterable[KindRule], *, is_audit: bool) -> frozenset[Right]:
    """Return the rights on the objects that are marked and deleted.

    Args:
        rules: The rules of Secrets and ConfigMaps, or of one of them.
        is_audit: Whether unused objects are only marked.
    """
    verbs = ("patch",) if is_audit else OBJECT_VERBS
    return frozenset(Right(rule.group, rule.plural, verb) for rule in rules for verb in verbs)
