"""What lets kinds join an installation: rights that the roles there aggregate, and what tells of the objects.

The components kind-* and source-apiserver/* are this for three kinds, and held to it by a test.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.errors import TtlError
from shared.installation.rbac import Right, needs_of

COMPONENTS = {"job": ("batch", "jobs"), "pod": ("", "pods"), "trainjob": ("trainer.kubeflow.org", "trainjobs")}
"""Kinds with components of their own, by the name of these: kind-job, source-apiserver/job."""

_SOURCE_PREFIX_MAX = 15
_SOURCE_HASH = 6
"""With a hyphen between them 22 characters: the identity that Knative makes of it may have 63."""

_VERBS = ("get", "list", "watch", "delete")
_READS = "Reads the object afresh, and deletes it; lists those beside it where a policy keeps the newest."
_LISTS = "Lists all, and deletes what is due."
_ONE_BY_ONE = "Lists all, and deletes what is due; an object whose TTL stands in an annotation only is read one by one."
_WATCHES = "What a source watches by."
_STARTS = "An ApiServerSource does not start without it, and never uses it."
_ONE_EACH = "One source for each kind: a kind whose CRD is missing ends its source, and no other."


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object to be applied.

    Attributes:
        about: One sentence about it.
        body: The object.
    """

    about: str
    body: dict[str, Any]


def join(rules: Iterable[KindRule], *, namespace: str, with_source: bool) -> Iterator[Manifest]:
    """All that lets the kinds join: for each a role for each who needs rights on it, and a source where one is wanted.

    Args:
        rules: Several of one kind are one kind here, in the version of the first.
        namespace: Of the installation.
        with_source: Whether Knative's ApiServerSource tells of the kinds.

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
            yield Manifest(_STARTS, _role("source", f"source-apiserver-{label_of(of_kind[0])}", extra, of_kind[0]))
            yield Manifest(_ONE_EACH, _source(of_kind[0], namespace))


def component_of(group: str, resource: str) -> str | None:
    """The name of the components of a kind, if it has some."""
    return next((name for name, kind in COMPONENTS.items() if kind == (group, resource)), None)


def label_of(rule: KindRule) -> str:
    """What the names of a kind's roles end with."""
    return component_of(rule.group, rule.plural) or rule.name


def source_name(rule: KindRule) -> str:
    """The name of a kind's ApiServerSource: short, since Knative makes longer names of it, and no other kind's."""
    digest = hashlib.sha256(rule.name.encode()).hexdigest()[:_SOURCE_HASH]
    return component_of(rule.group, rule.plural) or f"{rule.plural[:_SOURCE_PREFIX_MAX]}-{digest}"


def identity_of(rule: KindRule, namespace: str) -> str:
    """As whom a kind's ApiServerSource sends its events where Knative's tokens are switched on."""
    return f"system:serviceaccount:{namespace}:{source_name(rule)}-oidc-sources.knative.dev-apiserversource"


def is_watchable(rule: KindRule) -> bool:
    """Whether an ApiServerSource finds the kind: it does not ask for a plural, but makes one of the kind."""
    return rule.plural == _guess_plural(rule.kind.lower())


def _guess_plural(singular: str) -> str:
    if singular.endswith("endpoints"):
        return singular
    if singular.endswith("s"):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"


def _roles(rules: list[KindRule]) -> Iterator[Manifest]:
    label = label_of(rules[0])
    is_read = any(rule.ttl is None for rule in rules)
    roles = (("expire", "expire", _READS), ("sweep", "sweep", _ONE_BY_ONE if is_read else _LISTS))
    for component, role, about in (*roles, ("source", "watch", _WATCHES)):
        rights = needs_of(role, rules) - needs_of(role, ())
        yield Manifest(about, _role(component, f"{component}-{label}", rights, rules[0]))


def _role(component: str, name: str, rights: Iterable[Right], first: KindRule) -> dict[str, Any]:
    """A role that joins that of the component.

    Args:
        component: Whose role it joins.
        name: What its own name ends with.
        rights: What it allows.
        first: The kind it is for, which stands before its owners.
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
            f"{rule.name}: an ApiServerSource would look for {guessed}, which is not what {rule.kind} is called; "
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
            "resources": [{"apiVersion": rule.api_version, "kind": rule.kind}],
            "namespaceSelector": {},
            "sink": {"ref": {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "name": "default"}},
        },
    }
