"""The delete guard: admission policies by which the API server itself refuses what our accounts must never delete.

One ValidatingAdmissionPolicy and its binding for each kind, made from the kind's rules. The policies bind the accounts
that they name, and no person's kubeconfig. The components delete-guard/* are this for three kinds.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from shared.core.kinds.admission import Expressions, express, rule_version
from shared.core.kinds.cel_text import list_of
from shared.core.kinds.rule import KindRule
from shared.core.objects import ANNOTATION_DOMAIN, GUARD_PREFIX
from shared.installation.kind_manifests import Manifest, label_of

ACCOUNTS = ("expire", "sweep", "standalone")
"""The ServiceAccounts that may delete."""

VERSION = f"{ANNOTATION_DOMAIN}/rule-version"
"""Annotation of a policy: which version of the kind's rule it was made from."""

NOT_CHECKED = f"{ANNOTATION_DOMAIN}/not-checked"
"""Annotation of a policy: what the rule says, or `decide` asks, and CEL at admission cannot."""

_REFUSES = "Refuses our accounts a DELETE of an object that is unfinished, held or exempt, or without preconditions."
_IN_FORCE = "The policy counts from here on."
_API = "admissionregistration.k8s.io/v1"
_ALWAYS = "the finish time, the TTL and the clock; opt-in, policies and keepLast; dispatch by another cluster"
_OWNERS = "whether an owner is unfinished"
_EXEMPT = (
    "namespaceObject == null "
    f"|| namespaceObject.metadata.?annotations[?'{ANNOTATION_DOMAIN}/exempt'].orValue('false') == 'false'"
)
"""The API server knows better than a rule whether a kind has namespaces."""

_HELD = f"'{ANNOTATION_DOMAIN}/hold' in oldObject.metadata.?annotations.orValue({{}})"


def usernames(namespace: str) -> tuple[str, ...]:
    """The names by which the API server knows the accounts of an installation that may delete."""
    return tuple(f"system:serviceaccount:{namespace}:{account}" for account in ACCOUNTS)


def guard_name(rule: KindRule) -> str:
    """The name of a kind's policy and binding."""
    return f"{GUARD_PREFIX}{label_of(rule)}"


def guards(rules: Iterable[KindRule], namespace: str, others: Sequence[str] = ()) -> Iterator[Manifest]:
    """The policies and bindings of all kinds.

    Args:
        rules: Several of one kind are one kind here.
        namespace: Of the installation whose accounts they bind.
        others: The names of other users that they bind.
    """
    kinds: defaultdict[str, list[KindRule]] = defaultdict(list)
    for rule in rules:
        kinds[rule.name].append(rule)
    for of_kind in kinds.values():
        policy, binding = guard(of_kind, namespace, others)
        yield Manifest(_REFUSES, policy)
        yield Manifest(_IN_FORCE, binding)


def guard(
    rules: Sequence[KindRule], namespace: str, others: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The policy and the binding of one kind.

    What the API server would add by default is in them, so a copy that was read back can be compared.

    Args:
        rules: All rules of one kind.
        namespace: Of the installation whose accounts they bind.
        others: The names of other users that they bind.
    """
    first = rules[0]
    metadata = {"name": guard_name(first), "labels": {"app.kubernetes.io/component": "delete-guard"}}
    version, expressions = rule_version(rules), express(rules)
    about = {VERSION: version, NOT_CHECKED: not_checked(rules)}
    policy = {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {**metadata, "annotations": about},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": [_deletions_of(first)],
            },
            "matchConditions": [{"name": "ttl-after-finished-deletes", "expression": binds(namespace, others)}],
            **_variables(expressions),
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"}
                for expression, message in _validations(first, expressions, version)
            ],
        },
    }
    binding = {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": metadata["name"], "validationActions": ["Deny"]},
    }
    return policy, binding


def not_checked(rules: Sequence[KindRule]) -> str:
    """What `decide` asks before a deletion and a policy at admission cannot, in words."""
    owners = any(rule.while_owner_unfinished == "keep" for rule in rules)
    return f"{_ALWAYS}; {_OWNERS}{'' if owners else ' where a policy or a namespace sets the TTL'}"


def _deletions_of(rule: KindRule) -> dict[str, Any]:
    """In any version: one that the rule does not know is matched, and refused."""
    return {
        "apiGroups": [rule.group],
        "apiVersions": ["*"],
        "operations": ["DELETE"],
        "resources": [rule.plural],
        "scope": "*",
    }


def binds(namespace: str, others: Sequence[str] = ()) -> str:
    """Whether a request is one of a user that a guard binds, in CEL; the namespace is named once, for kustomize."""
    user = "request.userInfo.username"
    ours = f"{user}.startsWith('system:serviceaccount:{namespace}:') && {user}.split(':')[3] in {list_of(ACCOUNTS)}"
    return f"{ours} || {user} in {list_of(others)}" if others else ours


def _variables(expressions: Expressions) -> dict[str, Any]:
    variables = [{"name": name, "expression": text} for name, text in sorted(expressions.variables.items())]
    return {"variables": variables} if variables else {}


def _validations(rule: KindRule, expressions: Expressions, version: str) -> Iterator[tuple[str, str]]:
    """Each with what is wrong where it does not hold."""
    yield "request.?name.orValue('') != ''", "deletecollection: expected a DELETE of one object"
    preconditions = "request.options.?preconditions"
    yield (
        f"{preconditions}.?uid.hasValue() && {preconditions}.?resourceVersion.hasValue()",
        "preconditions: expected uid and resourceVersion of the object that was read",
    )
    yield f"!({_HELD})", f"held: the {rule.kind} has the annotation {ANNOTATION_DOMAIN}/hold"
    yield _EXEMPT, f'exempt: the namespace has the annotation {ANNOTATION_DOMAIN}/exempt, and it is not "false"'
    by = f"version {version} of the rule for {rule.name}"
    if expressions.shapes:
        yield " && ".join(expressions.shapes), f"unknown shape: a field of the {rule.kind} has a type unknown to {by}"
    yield expressions.finished, f"unfinished: the {rule.kind} has not finished by {by}"
