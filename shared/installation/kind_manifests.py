"""Make the manifests that add kinds to an installation: aggregated RBAC rights, and an ApiServerSource for events.

The components kind-* and source-apiserver/* contain the output for three kinds; a test compares them with this module.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.errors import TtlError
from shared.installation.rbac import Right, delete_at_deadline, needs_of

COMPONENTS = {"job": ("batch", "jobs"), "pod": ("", "pods"), "trainjob": ("trainer.kubeflow.org", "trainjobs")}
"""Kinds with shipped components, by the suffix of the component's name: kind-job, source-apiserver/job."""

_SOURCE_PREFIX_MAX = 15
_SOURCE_HASH = 6
"""Prefix, hyphen and hash are 22 characters: Knative makes an identity of the name, which may have 63 characters."""

_VERBS = ("get", "list", "watch", "patch", "delete")
_EXPIRE_COMMENT = "Reads the object again before the DELETE. Lists the kind if a policy keeps the newest of a group."
_ENFORCE_COMMENT = "Reads the object again at its active deadline."
_ENFORCE_STOPS_COMMENT = (
    "Reads the object again at its active deadline, and stops it by a patch. Lists the kind if a breaker has a share."
)
_ENFORCE_DELETES_COMMENT = (
    "Deletes an object at its active deadline if the object asks for that: on-deadline is delete."
)
_ARCHIVE_COMMENT = "Reads the object again, with its children and the logs of its Pods, and stores them in the archive."
_SWEEP_COMMENT = (
    "Lists all objects and deletes those that are due. Reads one of them again where the list is not enough."
)
_INHERITED_COMMENT = " Reads inherited TTLs."
_CHILDREN_COMMENT = " Reads its children, if a policy has archives."
_WATCH_COMMENT = "The event source watches the kind."
_UI_COMMENT = "The page lists all objects."
_SOURCE_RIGHTS_COMMENT = "An ApiServerSource does not start without these rights, but does not use them."
_SOURCE_COMMENT = "One source for each kind: if a CRD is missing, only the source of that kind ends."


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object for `kubectl apply`.

    Attributes:
        about: One or two sentences about the object, printed as a comment.
        body: The object.
    """

    about: str
    body: dict[str, Any]


def join(rules: Iterable[KindRule], *, namespace: str, with_source: bool) -> Iterator[Manifest]:
    """Make the ClusterRoles of each kind, and its ApiServerSource if requested.

    Args:
        rules: The kind rules; of several rules of one kind, the first sets the version.
        namespace: The namespace of the installation.
        with_source: Whether an ApiServerSource of Knative reports the changes of the kinds.

    Raises:
        TtlError: An ApiServerSource cannot watch a kind.
    """
    kinds: defaultdict[str, list[KindRule]] = defaultdict(list)
    for rule in rules:
        kinds[rule.name].append(rule)
    for of_kind in kinds.values():
        yield from _roles(of_kind)
        if with_source:
            extra = needs_of("source", of_kind) - needs_of("watch", of_kind)
            role = _role("source", f"source-apiserver-{label_of(of_kind[0])}", extra, of_kind[0])
            yield Manifest(_SOURCE_RIGHTS_COMMENT, role)
            yield Manifest(_SOURCE_COMMENT, _source(of_kind[0], namespace))


def deadline_deletes(rules: Iterable[KindRule]) -> Iterator[Manifest]:
    """Make the ClusterRoles by which `enforce` may delete objects at their deadline, for the kinds that know one."""
    kinds: defaultdict[str, list[KindRule]] = defaultdict(list)
    for rule in rules:
        kinds[rule.name].append(rule)
    for of_kind in kinds.values():
        if rights := delete_at_deadline(of_kind):
            role = _role("enforce", f"enforce-delete-{label_of(of_kind[0])}", rights, of_kind[0])
            yield Manifest(_ENFORCE_DELETES_COMMENT, role)


def component_of(group: str, resource: str) -> str | None:
    """Return the suffix of a kind's shipped components; None if none are shipped."""
    return next((name for name, kind in COMPONENTS.items() if kind == (group, resource)), None)


def label_of(rule: KindRule) -> str:
    """Return the suffix of the names of a kind's roles."""
    return component_of(rule.group, rule.plural) or rule.name


def source_name(rule: KindRule) -> str:
    """Return the name of a kind's ApiServerSource: unique, and short because Knative makes longer names from it."""
    digest = hashlib.sha256(rule.name.encode()).hexdigest()[:_SOURCE_HASH]
    return component_of(rule.group, rule.plural) or f"{rule.plural[:_SOURCE_PREFIX_MAX]}-{digest}"


def identity_of(rule: KindRule, namespace: str) -> str:
    """Return the user name of a kind's ApiServerSource if Knative's authentication-oidc is enabled."""
    return f"system:serviceaccount:{namespace}:{source_name(rule)}-oidc-sources.knative.dev-apiserversource"


def is_watchable(rule: KindRule) -> bool:
    """Whether an ApiServerSource finds the kind: it derives the plural from the kind instead of reading discovery."""
    return rule.plural == _guess_plural(rule.kind.lower())


def _guess_plural(singular: str) -> str:
    if singular.endswith("endpoints"):
        return singular
    if singular.endswith("s"):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"


def _roles(rules: list[KindRule]) -> Iterator[Manifest]:
    label = label_of(rules[0])
    also = _CHILDREN_COMMENT if any(rule.children for rule in rules) else ""
    also += _INHERITED_COMMENT if any(rule.ttl and rule.ttl.inherited for rule in rules) else ""
    can_stop = any(rule.deadline and rule.deadline.stop for rule in rules)
    roles = (
        ("expire", "expire", _EXPIRE_COMMENT + also),
        ("enforce", "enforce", _ENFORCE_STOPS_COMMENT if can_stop else _ENFORCE_COMMENT),
        ("archive", "archive", _ARCHIVE_COMMENT),
        ("sweep", "sweep", _SWEEP_COMMENT + also),
        ("source", "watch", _WATCH_COMMENT),
        ("ui", "ui", _UI_COMMENT),
    )
    for component, role, about in roles:
        rights = needs_of(role, rules) - needs_of(role, ())
        yield Manifest(about, _role(component, f"{component}-{label}", rights, rules[0]))


def _role(component: str, name: str, rights: Iterable[Right], first: KindRule) -> dict[str, Any]:
    """Make a ClusterRole that is aggregated into the role of a component.

    Args:
        component: The component whose role aggregates this one.
        name: The suffix of the name of the ClusterRole.
        rights: The rights that the role grants.
        first: The kind of the role; its rights come before those on its owners.
    """
    verbs: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for right in rights:
        verbs[right.group, right.resource].add(right.verb)
    own = (first.group, first.plural)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": f"ttl-after-finished-{name}",
            "labels": {
                "app.kubernetes.io/component": component,
                f"ttlafterfinished.dev/aggregate-to-{component}": "true",
            },
        },
        "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": sorted(allowed, key=_VERBS.index)}
            for (group, resource), allowed in sorted(verbs.items(), key=lambda one: (one[0] != own, one[0]))
        ],
    }


def _source(rule: KindRule, namespace: str) -> dict[str, Any]:
    if not is_watchable(rule):
        guessed = _guess_plural(rule.kind.lower())
        raise TtlError(
            f"{rule.name}: an ApiServerSource would look for {guessed}, which is not the plural of {rule.kind}; "
            "expected --source watch, and components/source-watch"
        )
    return {
        "apiVersion": "sources.knative.dev/v1",
        "kind": "ApiServerSource",
        "metadata": {
            "name": source_name(rule),
            "namespace": namespace,
            "labels": {"app.kubernetes.io/component": "source"},
        },
        "spec": {
            "serviceAccountName": "source",
            "mode": "Resource",
            "resources": [{"apiVersion": rule.api_version, "kind": rule.kind, **_selector(rule)}],
            "namespaceSelector": {},
            "sink": {"ref": {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "name": "default"}},
        },
    }


def _selector(rule: KindRule) -> dict[str, Any]:
    """Return the label selector of a source: all objects of a kind, but no Pods of the functions.

    Their Pods change when Knative scales them. With these events, `schedule` would be started again by the end of its
    own Pod, and would never stay scaled to zero. The sweep lists these Pods, too.
    """
    if (rule.api_version, rule.kind) != ("v1", "Pod"):
        return {}
    others = {"key": "app.kubernetes.io/name", "operator": "NotIn", "values": ["ttl-after-finished"]}
    return {"selector": {"matchExpressions": [others]}}
