"""The delete guard: admission policies that make the API server reject a DELETE that our accounts must never send.

Each kind gets one ValidatingAdmissionPolicy and its binding, made from the rules of the kind. A policy binds only the
accounts that it names; it does not bind a person's kubeconfig. The components delete-guard/* contain the output for
three kinds.
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
"""Annotation of an admission policy: the version of the kind's rule that the policy was made from."""

NOT_CHECKED = f"{ANNOTATION_DOMAIN}/not-checked"
"""Annotation of an admission policy: the conditions that `decide` checks and CEL at admission cannot check."""

_POLICY_COMMENT = (
    "Rejects a DELETE from our accounts if the object is unfinished, held or exempt, or if preconditions are missing."
)
_BINDING_COMMENT = "Puts the policy in force."
_API = "admissionregistration.k8s.io/v1"
_ALWAYS = "the finish time, the TTL and the clock; opt-in, policies and keepLast; dispatch by another cluster"
_OWNERS = "whether an owner is unfinished"
_EXEMPT = (
    "namespaceObject == null "
    f"|| namespaceObject.metadata.?annotations[?'{ANNOTATION_DOMAIN}/exempt'].orValue('false') == 'false'"
)
"""A cluster-scoped object has no namespaceObject. The API server knows the scope; a rule may be wrong about it."""

_HELD = f"'{ANNOTATION_DOMAIN}/hold' in oldObject.metadata.?annotations.orValue({{}})"


def usernames(namespace: str) -> tuple[str, ...]:
    """Return the user names of the ServiceAccounts of an installation that may delete."""
    return tuple(f"system:serviceaccount:{namespace}:{account}" for account in ACCOUNTS)


def guard_name(rule: KindRule) -> str:
    """Return the name of a kind's admission policy, which is also the name of its binding."""
    return f"{GUARD_PREFIX}{label_of(rule)}"


def guards(rules: Iterable[KindRule], namespace: str, others: Sequence[str] = ()) -> Iterator[Manifest]:
    """Make the admission policies and bindings of all kinds.

    Args:
        rules: The kind rules; all rules of one kind make one policy.
        namespace: The namespace of the installation whose accounts the policies bind.
        others: The names of other users that the policies bind.
    """
    kinds: defaultdict[str, list[KindRule]] = defaultdict(list)
    for rule in rules:
        kinds[rule.name].append(rule)
    for of_kind in kinds.values():
        policy, binding = guard(of_kind, namespace, others)
        yield Manifest(_POLICY_COMMENT, policy)
        yield Manifest(_BINDING_COMMENT, binding)


def guard(
    rules: Sequence[KindRule], namespace: str, others: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the admission policy and the binding of one kind.

    Both contain the fields that the API server sets by default, so they can be compared with what it returns.

    Args:
        rules: All rules of one kind.
        namespace: The namespace of the installation whose accounts the policy binds.
        others: The names of other users that the policy binds.
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
    """Describe the conditions that `decide` checks before a deletion and the admission policy cannot check."""
    owners = any(rule.while_owner_unfinished == "keep" for rule in rules)
    return f"{_ALWAYS}; {_OWNERS}{'' if owners else ' where a policy or a namespace sets the TTL'}"


def _deletions_of(rule: KindRule) -> dict[str, Any]:
    """Return the resource rule that matches every API version, so a version unknown to the rule is rejected too."""
    return {
        "apiGroups": [rule.group],
        "apiVersions": ["*"],
        "operations": ["DELETE"],
        "resources": [rule.plural],
        "scope": "*",
    }


def binds(namespace: str, others: Sequence[str] = ()) -> str:
    """Return the CEL condition that a request comes from a bound user.

    The namespace occurs once in the expression, so kustomize can replace it.
    """
    user = "request.userInfo.username"
    ours = f"{user}.startsWith('system:serviceaccount:{namespace}:') && {user}.split(':')[3] in {list_of(ACCOUNTS)}"
    return f"{ours} || {user} in {list_of(others)}" if others else ours


def _variables(expressions: Expressions) -> dict[str, Any]:
    variables = [{"name": name, "expression": text} for name, text in sorted(expressions.variables.items())]
    return {"variables": variables} if variables else {}


def _validations(rule: KindRule, expressions: Expressions, version: str) -> Iterator[tuple[str, str]]:
    """Yield each CEL validation with the message of the API server if the validation fails."""
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
