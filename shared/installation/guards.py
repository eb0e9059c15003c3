"""The guards: admission policies that make the API server reject what our accounts must never send.

Each kind gets a ValidatingAdmissionPolicy and its binding, made from the rules of the kind. A policy binds only the
accounts that it names; it does not bind a person's kubeconfig. The components delete-guard/* contain those of three
kinds.

The delete guard rejects a DELETE. The stop guard rejects a change that `enforce` must never make: the right to patch a
kind cannot be limited to some fields. Our accounts may change an object only as `stop` or `suspend` of its kind rule
says, and only while it runs and is not held or exempt. If the object's own annotation says what is done at its
deadline, they may make no other change.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.core.deadlines.deadline import DEADLINE_EXCEEDED, DEADLINES, ON_DEADLINE, STOPPED_GENERATION, STOPS, Stage
from shared.core.kinds.admission import Expressions, express, rule_version
from shared.core.kinds.cel_text import SET_BY_SERVER, both, is_merged, is_same_beside, is_same_but, list_of
from shared.core.kinds.rule import KindRule
from shared.core.kinds.ttl_and_deadline import ACTIONS, DeadlineRule
from shared.core.values.objects import ANNOTATION_DOMAIN, GUARD_PREFIX, STOP_GUARD_PREFIX
from shared.installation.kind_manifests import Manifest, label_of
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
        operation: The operation of the requests.
        not_checked: The conditions that our code checks, and CEL at admission cannot check.
    """

    component: str
    condition: str
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
    guarded = Guarded("delete-guard", "ttl-after-finished-deletes", "DELETE", not_checked(rules))
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


STOP_NOT_CHECKED = (
    "the start, the deadline and the clock; policies and defaults of namespaces; whether an owner is unfinished; "
    "whether the kind's own controller enforces a deadline, if the stop does not write that field; "
    "the preconditions of the patch"
)
"""The conditions that `decide_stop` checks, and the API server cannot check."""

_MARKS = tuple(f"{ANNOTATION_DOMAIN}/{name}" for name in (DEADLINE_EXCEEDED, STOPS, STOPPED_GENERATION))
_MARK = f"object.metadata.?annotations[?'{_MARKS[0]}'].hasValue()"

_Patch = Mapping[str, Any]


def can_stop(rules: Sequence[KindRule]) -> bool:
    """Return whether objects of a kind are stopped by a patch, so that the kind has a stop guard."""
    return any(rule.deadline and rule.deadline.stop for rule in rules)


def stop_guard_name(rule: KindRule) -> str:
    """Return the name of a kind's stop guard, which is also the name of its binding."""
    return f"{STOP_GUARD_PREFIX}{label_of(rule)}"


def stop_guard(
    rules: Sequence[KindRule], namespace: str, others: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the admission policy and the binding for the stops of one kind.

    Args:
        rules: All rules of one kind, of which at least one has a stop.
        namespace: The namespace of the installation whose accounts the policy binds.
        others: The names of other users that the policy binds.
    """
    expressions = express(rules, of_stops=True)
    return make_guard(
        stop_guard_name(rules[0]),
        Guarded("stop-guard", "ttl-after-finished-stops", "UPDATE", STOP_NOT_CHECKED),
        rules,
        variables=expressions.variables,
        validations=_stop_validations(rules, expressions),
        condition=binds(namespace, others, accounts=STOPPERS),
    )


def _stop_validations(rules: Sequence[KindRule], expressions: Expressions) -> Iterator[tuple[str, str]]:
    """Yield each CEL validation with the message of the API server if the validation fails."""
    rule, version = rules[0], rule_version(rules)
    by = f"version {version} of the rule for {rule.name}"
    yield from kept(rule)
    yield from _not_opted_out(rule, expressions.pending)
    yield from known_shape(rule, expressions, version)
    yield f"!({expressions.finished})", f"finished: the {rule.kind} has finished by {by}"
    if expressions.stoppable:
        yield (
            expressions.stoppable,
            f"run: the {rule.kind} is suspended, or has a deadline or a controller of its own, by {by}",
        )
    yield _MARK, f"mark: expected the annotation {_MARKS[0]} with the stop"
    asked = f"that its annotation {ANNOTATION_DOMAIN}/{ON_DEADLINE} allows"
    yield _is_stopped(rules), f"change: expected no change of the {rule.kind} but the stop of {by}, {asked}"


def _not_opted_out(rule: KindRule, pending: str) -> Iterator[tuple[str, str]]:
    """Yield the validation that the annotation of the deadline that applies is not `never`.

    Args:
        rule: The rule of the kind, for the message.
        pending: The CEL condition that the object has never started; empty if the rules do not show it.
    """
    names = {stage: f"{ANNOTATION_DOMAIN}/{name}" for stage, name in DEADLINES.items()}
    active, waits = (
        f"oldObject.metadata.?annotations[?'{names[stage]}'].orValue('') != 'never'"
        for stage in (Stage.ACTIVE, Stage.PENDING)
    )
    has = f"opted out: the {rule.kind} has the annotation"
    if not pending:
        yield active, f"{has} {names[Stage.ACTIVE]}: never"
        return
    yield f"({pending}) || {active}", f"{has} {names[Stage.ACTIVE]}: never"
    yield f"!({pending}) || {waits}", f"{has} {names[Stage.PENDING]}: never, and has never started"


def _is_stopped(rules: Sequence[KindRule]) -> str:
    """Return the CEL condition that the new object is the old object with the stop of its version, and nothing else."""
    whole = "false"
    for rule in reversed(rules):
        if rule.deadline and rule.deadline.stop:
            is_known = f"oldObject.apiVersion in {list_of(rule.api_versions)}"
            is_stop = " || ".join(f"({' && '.join(one)})" for one in _stops(rule.deadline))
            whole = f"{is_known} && ({is_stop})" if whole == "false" else f"{is_known} ? ({is_stop}) : ({whole})"
    return whole


def _stops(deadline: DeadlineRule) -> Iterator[list[str]]:
    """Yield, for each patch of a kind, the conditions that it was applied, and that the object asks for no other.

    Without the annotation, a policy rule may ask for any of them.
    """
    own = f"oldObject.metadata.?annotations[?'{ANNOTATION_DOMAIN}/{ON_DEADLINE}']"
    for one in deadline.patches:
        actions = [action for action in ACTIONS if deadline.find_stop(action) is one]
        yield [f"{own}.orValue('{actions[0]}') in {list_of(actions)}", *_is_the_stop(one.patch)]


def _is_the_stop(patch: _Patch) -> Iterator[str]:
    """Yield the conditions that the new object has all values of the patch and the mark, and no other change."""
    metadata = patch.get("metadata", {})
    yield from is_same_beside("oldObject", "object", (*patch, "metadata"))
    yield from is_same_beside("oldObject.metadata", "object.metadata", ("annotations", "labels", *SET_BY_SERVER))
    for name, marks in (("annotations", _MARKS), ("labels", ())):
        yield from is_same_but(both(f"metadata.?{name}"), metadata.get(name, {}), marks)
    for name in sorted({*patch} - {"metadata"}):
        yield from is_same_but(both(f"?{name}"), patch[name])
    yield from is_merged("object", patch)


_DELETE_COMMENT = (
    "Rejects a DELETE from our accounts if the object is unfinished, held or exempt, or if preconditions are missing."
)
_STOP_COMMENT = (
    "Rejects a change by our accounts that is not the stop of its kind, or of a held, exempt or finished object."
)
_BINDING_COMMENT = "Puts the policy in force."


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
        made = [(_DELETE_COMMENT, guard(of_kind, namespace, others))]
        made += [(_STOP_COMMENT, stop_guard(of_kind, namespace, others))] if can_stop(of_kind) else []
        for comment, (policy, binding) in made:
            yield Manifest(comment, policy)
            yield Manifest(_BINDING_COMMENT, binding)
