"""The stop guard: admission policies that make the API server reject a change that `enforce` must never make.

The right to patch a kind cannot be limited to some fields. The stop guard limits it: our accounts may change an object
only as `stop` or `suspend` of its kind rule says, and only while it runs and is not held or exempt. If the object's own
annotation says what is done at its deadline, they may make no other change.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared.core.deadlines.deadline import DEADLINE_EXCEEDED, DEADLINES, ON_DEADLINE, STOPPED_GENERATION, STOPS, Stage
from shared.core.kinds.admission import Expressions, express, rule_version
from shared.core.kinds.cel_text import SET_BY_SERVER, both, is_merged, is_same_beside, is_same_but, list_of
from shared.core.kinds.rule import KindRule
from shared.core.kinds.ttl_and_deadline import ACTIONS, DeadlineRule
from shared.core.values.objects import ANNOTATION_DOMAIN, STOP_GUARD_PREFIX
from shared.installation.delete_guard import Guarded, binds, kept, known_shape, make_guard
from shared.installation.kind_manifests import label_of
from shared.installation.rbac import STOPPERS

NOT_CHECKED = (
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
        Guarded("stop-guard", "ttl-after-finished-stops", STOPPERS, "UPDATE", NOT_CHECKED),
        rules,
        variables=expressions.variables,
        validations=_validations(rules, expressions),
        condition=binds(namespace, others, accounts=STOPPERS),
    )


def _validations(rules: Sequence[KindRule], expressions: Expressions) -> Iterator[tuple[str, str]]:
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
