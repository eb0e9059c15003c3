"""The delete guard: admission policies that make the API server reject a DELETE that our accounts must never send.

Each kind gets one ValidatingAdmissionPolicy and its binding, made from the rules of the kind. A policy binds only the
accounts that it names; it does not bind a person's kubeconfig. `shared.installation.stop_guard` makes the policies for
stops by the same functions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.core.deadlines.deadline import DEADLINES, ON_DEADLINE, Stage
from shared.core.kinds.admission import Expressions, express, rule_version
from shared.core.kinds.cel_text import list_of
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import ANNOTATION_DOMAIN, GUARD_PREFIX
from shared.installation.kind_manifests import label_of
from shared.installation.rbac import STOPPERS, WRITERS

ACCOUNTS = WRITERS
"""The ServiceAccounts that may delete; `enforce` only if an operator lets it delete objects at their deadline."""

VERSION = f"{ANNOTATION_DOMAIN}/rule-version"
"""Annotation of an admission policy: the version of the kind's rule that the policy was made from."""

NOT_CHECKED = f"{ANNOTATION_DOMAIN}/not-checked"
"""Annotation of an admission policy: the conditions that `decide` checks and CEL at admission cannot check."""

_API = "admissionregistration.k8s.io/v1"
_ALWAYS = "the finish time, the TTL and the clock; opt-in, policies and keepLast; dispatch by another cluster"
_OWNERS = "whether an owner is unfinished"
_EXEMPT = (
    "namespaceObject == null "
    f"|| namespaceObject.metadata.?annotations[?'{ANNOTATION_DOMAIN}/exempt'].orValue('false') == 'false'"
)
"""A cluster-scoped object has no namespaceObject. The API server knows the scope; a rule may be wrong about it."""

_HELD = f"'{ANNOTATION_DOMAIN}/hold' in oldObject.metadata.?annotations.orValue({{}})"

_IS_STOPPER = " || ".join(f"request.userInfo.username.endsWith(':{account}')" for account in STOPPERS)

_HAS = "oldObject.metadata.?annotations[?'{}'].orValue('never') != 'never'"
_ASKS = f"oldObject.metadata.?annotations[?'{ANNOTATION_DOMAIN}/{ON_DEADLINE}'].orValue('') == 'delete'"


@dataclass(frozen=True, slots=True)
class Guarded:
    """What an admission policy guards.

    Attributes:
        component: The label of the policy, such as `delete-guard`.
        condition: The name of the condition by which it binds our accounts.
        accounts: The ServiceAccounts that it binds.
        operation: The operation of the requests.
        not_checked: The conditions that our code checks, and CEL at admission cannot check.
    """

    component: str
    condition: str
    accounts: tuple[str, ...]
    operation: str
    not_checked: str


def usernames(namespace: str) -> tuple[str, ...]:
    """Return the user names of the ServiceAccounts of an installation that may delete."""
    return tuple(f"system:serviceaccount:{namespace}:{account}" for account in ACCOUNTS)


def guard_name(rule: KindRule) -> str:
    """Return the name of a kind's admission policy, which is also the name of its binding."""
    return f"{GUARD_PREFIX}{label_of(rule)}"


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
    first, version, expressions = rules[0], rule_version(rules), express(rules)
    guarded = Guarded("delete-guard", "ttl-after-finished-deletes", ACCOUNTS, "DELETE", not_checked(rules))
    return make_guard(
        guard_name(first),
        guarded,
        rules,
        variables=expressions.variables,
        validations=_validations(rules, expressions, version),
        condition=binds(namespace, others),
    )


def make_guard(  # noqa: PLR0913 - the parts of a policy
    name: str,
    guarded: Guarded,
    rules: Sequence[KindRule],
    *,
    variables: Mapping[str, str],
    validations: Iterable[tuple[str, str]],
    condition: str,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make an admission policy and its binding.

    Args:
        name: The name of both.
        guarded: What the policy guards.
        rules: All rules of one kind.
        variables: The CEL variables of the validations.
        validations: The CEL validations, each with the message of the API server if the validation fails.
        condition: The CEL condition that a request comes from a bound user.
    """
    metadata = {"name": name, "labels": {"app.kubernetes.io/component": guarded.component}}
    about = {VERSION: rule_version(rules), NOT_CHECKED: guarded.not_checked}
    listed = [{"name": name, "expression": text} for name, text in sorted(variables.items())]
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
                "resourceRules": [_requests_for(rules[0], guarded.operation)],
            },
            "matchConditions": [{"name": guarded.condition, "expression": condition}],
            **({"variables": listed} if listed else {}),
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"}
                for expression, message in validations
            ],
        },
    }
    binding = {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return policy, binding


def _asks_for_deletion(pending: str) -> str:
    """Return the one case in which an account may delete an unfinished object: it asks for that at its deadline.

    Args:
        pending: The CEL condition that it has never started: only then its pending deadline applies; empty for never.
    """
    active, waits = (_HAS.format(f"{ANNOTATION_DOMAIN}/{DEADLINES[one]}") for one in (Stage.ACTIVE, Stage.PENDING))
    has_deadline = f"({active} || {waits} && ({pending}))" if pending else active
    return " && ".join((f"({_IS_STOPPER})", has_deadline, _ASKS))


def not_checked(rules: Sequence[KindRule]) -> str:
    """Describe the conditions that `decide` checks before a deletion and the admission policy cannot check."""
    owners = any(rule.while_owner_unfinished == "keep" for rule in rules)
    return f"{_ALWAYS}; {_OWNERS}{'' if owners else ' where a policy or a namespace sets the TTL'}"


def _requests_for(rule: KindRule, operation: str) -> dict[str, Any]:
    """Return the resource rule that matches every API version, so a version unknown to the rule is rejected too."""
    return {
        "apiGroups": [rule.group],
        "apiVersions": ["*"],
        "operations": [operation],
        "resources": [rule.plural],
        "scope": "*",
    }


def binds(namespace: str, others: Sequence[str] = (), *, accounts: Sequence[str] = ACCOUNTS) -> str:
    """Return the CEL condition that a request comes from a bound user.

    The namespace occurs once in the expression, so kustomize can replace it.
    """
    user = "request.userInfo.username"
    ours = f"{user}.startsWith('system:serviceaccount:{namespace}:') && {user}.split(':')[3] in {list_of(accounts)}"
    return f"{ours} || {user} in {list_of(others)}" if others else ours


def kept(rule: KindRule) -> Iterator[tuple[str, str]]:
    """Yield the validations by which a hold or an exempt namespace keeps an object."""
    yield f"!({_HELD})", f"held: the {rule.kind} has the annotation {ANNOTATION_DOMAIN}/hold"
    yield _EXEMPT, f'exempt: the namespace has the annotation {ANNOTATION_DOMAIN}/exempt, and it is not "false"'


def known_shape(rule: KindRule, expressions: Expressions, version: str) -> Iterator[tuple[str, str]]:
    """Yield the validation that the fields of an object have the types that its rule expects."""
    if expressions.shapes:
        by = f"version {version} of the rule for {rule.name}"
        yield " && ".join(expressions.shapes), f"unknown shape: a field of the {rule.kind} has a type unknown to {by}"


def _validations(rules: Sequence[KindRule], expressions: Expressions, version: str) -> Iterator[tuple[str, str]]:
    """Yield each CEL validation with the message of the API server if the validation fails."""
    rule = rules[0]
    yield "request.?name.orValue('') != ''", "deletecollection: expected a DELETE of one object"
    preconditions = "request.options.?preconditions"
    yield (
        f"{preconditions}.?uid.hasValue() && {preconditions}.?resourceVersion.hasValue()",
        "preconditions: expected uid and resourceVersion of the object that was read",
    )
    yield from kept(rule)
    yield from known_shape(rule, expressions, version)
    finished = expressions.finished
    if any(one.deadline for one in rules):  # an error of `finished` stays an error, as `||` would not keep it
        finished = f"({finished}) ? true : ({_asks_for_deletion(expressions.pending)})"
    yield finished, f"unfinished: the {rule.kind} has not finished by version {version} of the rule for {rule.name}"
