"""What the operator can do about a decision: a command if there is one."""

import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from string import Formatter
from typing import TYPE_CHECKING

from shared.core.archive.gate import AWAITS_ARCHIVE
from shared.core.deadlines.deadline import DEADLINE_EXCEEDED
from shared.core.deadlines.decide_stop import StopDecision
from shared.core.decision.decide import Decision, Reason
from shared.core.decision.namespaces import ARCHIVE
from shared.core.kinds.rule import KindRule
from shared.core.ttl.edits import HELD_TTL
from shared.core.values.objects import ANNOTATION_DOMAIN, ObjectRef

if TYPE_CHECKING:  # what is in force takes 100 ms to load, and `explain -f` needs none of it
    from shared.cli.deleters.in_force import PolicyInForce

_TO_KEEP = "to keep it: {hold}"
_ADVICE: Mapping[Reason, str] = {
    Reason.EXPIRED: _TO_KEEP,
    Reason.OVER_COUNT: _TO_KEEP,
    Reason.OVER_QUOTA: _TO_KEEP,
    Reason.AUDIT_ONLY: "to delete such objects, remove `audit` from the policy rule",
    Reason.NOT_DUE: _TO_KEEP,
    Reason.SERVER_CLOCK_AHEAD: "correct the clock that is wrong; `ttl-after-finished doctor` compares the two",
    Reason.HELD: "to end the hold: {release}",
    Reason.INVALID_TTL: "fix the problem; to remove its TTL annotations: {unset}",
    Reason.INVALID_POLICY: "fix the problem: until then the object is kept",
    Reason.NO_TTL: "to delete it 1h after it finished: {set}",
    Reason.NEVER: "to delete it 1h after it finished: {set}",
    Reason.FINISH_TIME_UNKNOWN: "to delete it at TIME, a later instant in RFC 3339: {at}",
    Reason.EXEMPT: "to end the exemption of every object in the namespace: {include}",
    Reason.NAMESPACE_UNREAD: "run the command as a user with `get` on namespaces",
    Reason.INHERITED_UNREAD: "allow `get` on the kind of that object, or set a TTL on this one: {set}",
    Reason.OWNER_UNFINISHED: "wait until the owner finishes, or ignore the owner: {disown}",
    Reason.OWNER_UNKNOWN: "allow it in a policy rule: `onOwned: delete`; or ignore the owner: {disown}",
    Reason.OWNER_UNREAD: "allow `get` on the kind of the owner, or ignore the owner: {disown}",
    Reason.DISPATCHED: "wait for the cluster that dispatched it, or allow it in a policy rule: `onDispatched: delete`",
    Reason.RECREATED: "set a TTL in the manifest that it applies, or allow it in a policy rule: `onRecreated: delete`",
    Reason.AGGREGATED_API: "if the server checks preconditions, write a kind rule with `preconditions: honoured`",
    Reason.API_UNREAD: "grant `list` on apiservices, or write a kind rule with `preconditions: honoured`",
    Reason.KEPT_LAST: "wait: it is deleted after enough newer objects have finished",
    Reason.UNKNOWN_SHAPE: "{kinds} shows the rule of its kind; a kind rule that you write replaces it",
}

_TO_RUN_ON = "to let it run without a deadline: {run_on}"
_STOP_ADVICE: Mapping[Reason, str] = {
    Reason.DEADLINE_EXCEEDED: _TO_RUN_ON,
    Reason.NOT_DUE: _TO_RUN_ON,
    Reason.SERVER_CLOCK_AHEAD: _TO_RUN_ON,
    Reason.INVALID_DEADLINE: "fix the problem; to remove its deadline annotations: {unset_deadline}",
    Reason.STOP_UNDONE: "correct the controller or client that resumes it; to let it be stopped again: {forget_stop}",
    Reason.CANNOT_STOP: "to have it deleted at its deadline instead: {delete_at_deadline}",
}

_UNREADABLE_SAVED = "remove the unreadable annotation: {forget}; then set a TTL: {set}"
_UNREADABLE_HELD = (
    "remove the unreadable annotation: {forget}; then end the hold: {release}; then set its former TTL again"
)

ARCHIVE_REASONS = (*AWAITS_ARCHIVE, Reason.INVALID_ARCHIVE)
"""The reasons about which `advise_archive` advises."""


def advise(
    decision: Decision,
    ref: ObjectRef,
    rule: KindRule,
    *,
    flags: tuple[str, ...] = (),
    is_saved: bool = False,
    is_readable: bool = True,
    lacks_managed_fields: bool = False,
) -> str:
    """Say what the operator can do to change a decision; return an empty text if there is nothing to do.

    Args:
        decision: The decision about the object.
        ref: The object.
        rule: The rule of its kind.
        flags: The flags that make kubectl use the object's cluster.
        is_saved: Whether the object has a saved TTL and no hold, so that only a release puts the TTL back.
        is_readable: Whether the saved TTL can be read, which a release requires.
        lacks_managed_fields: Whether the object is from a file without the `managedFields` that show its finish time.
    """
    template = _ADVICE.get(decision.reason, "")
    if field := decision.facts.overridden:
        template = "" if field.startswith("status.") else _TO_KEEP
    if lacks_managed_fields and decision.reason is Reason.FINISH_TIME_UNKNOWN:
        template = "repeat the command with the output of {dump}"
    if is_saved:
        template = "to put its TTL back: {release}"
    if not is_readable:
        template = _UNREADABLE_SAVED if is_saved else _UNREADABLE_HELD
    fields = {field for _, field, _, _ in Formatter().parse(template) if field}
    return template.format_map(commands_for(fields, ref, rule, flags=flags))


def advise_stop(stop: StopDecision, ref: ObjectRef, rule: KindRule, *, flags: tuple[str, ...] = ()) -> str:
    """Say what the operator can do about the deadline of a running object; an empty text if there is nothing to do.

    Args:
        stop: The decision about the deadline.
        ref: The object.
        rule: The rule of its kind.
        flags: The flags that make kubectl use the object's cluster.
    """
    template = _STOP_ADVICE.get(stop.reason, "")
    if template is _TO_RUN_ON and stop.facts.active.is_pending:
        template = "to let it wait without a deadline: {wait_on}"
    if stop.reason is Reason.CANNOT_STOP and rule.deadline is None:
        return ""  # it is unknown when the object started
    fields = {field for _, field, _, _ in Formatter().parse(template) if field}
    return template.format_map(commands_for(fields, ref, rule, flags=flags))


def commands_for(
    fields: Container[str], ref: ObjectRef, rule: KindRule, *, flags: tuple[str, ...], reason: str = "WHY"
) -> Mapping[str, str]:
    """Return the commands of these fields; quoting every command takes a tenth of the time of `explain -f`."""
    name, place = f"{rule.name}/{ref.name}", ("-n", ref.namespace) if ref.namespace else ()
    words = {
        "hold": ("ttl", "hold", name, "--reason", reason, *place),
        "release": ("ttl", "release", name, *place),
        "set": ("ttl", "set", name, "1h", *place),
        "at": ("ttl", "set", name, "TIME", *place),
        "unset": ("ttl", "set", name, "--unset", *place),
        "run_on": ("ttl", "set", name, "--deadline", "never", *place),
        "wait_on": ("ttl", "set", name, "--pending-deadline", "never", *place),
        "unset_deadline": ("ttl", "set", name, "--unset-deadline", *place),
        "delete_at_deadline": ("ttl", "set", name, "--on-deadline", "delete", *place),
        "forget_stop": ("annotate", name, f"{ANNOTATION_DOMAIN}/{DEADLINE_EXCEEDED}-", *place),
        "dump": ("get", name, "-o", "yaml", "--show-managed-fields", *place),
        "forget": ("annotate", name, f"{ANNOTATION_DOMAIN}/{HELD_TTL}-", *place),
        "disown": ("annotate", name, f"{ANNOTATION_DOMAIN}/owner=ignore", *place),
        "include": ("annotate", "namespace", ref.namespace, f"{ANNOTATION_DOMAIN}/exempt-"),
    }
    commands = {
        field: f"`{shlex.join(('kubectl', *parts, *flags))}`" for field, parts in words.items() if field in fields
    }
    return {**commands, "kinds": f"`kubectl ttl kinds {rule.name}`"}  # without flags: it needs no cluster


def advise_archive(
    decision: Decision,
    ref: ObjectRef,
    rule: KindRule,
    *,
    chosen: "PolicyInForce | None",
    flags: Sequence[str],
    has_obstacle: bool,
) -> Iterator[str]:
    """Say what the operator can do; the opt-out, which loses the object, comes last.

    Args:
        decision: The decision about the object; its reason is one of `ARCHIVE_REASONS`.
        ref: The object.
        rule: The rule of its kind.
        chosen: The policy that was applied; None for an object of a file.
        flags: The flags that make kubectl use the object's cluster.
        has_obstacle: Whether something else prevents the deletion, so that waiting does not help.
    """
    facts = decision.facts
    if decision.reason is Reason.INVALID_ARCHIVE:
        about = facts.problem_of or ref
        yield f"set the name of an archive: {_annotate(about, rule, _usual_name(chosen), flags)}"
        return
    if facts.problem and chosen is not None:
        yield f"fix the problem, then {_doctor(chosen, flags)}"
    elif not has_obstacle:
        yield "wait for the archive"
    yield f"to opt out; the object is then deleted without a copy: {_annotate(ref, rule, 'false', flags)}"


def _usual_name(chosen: "PolicyInForce | None") -> str:
    names = list(chosen.policy.archives) if chosen else []
    return names[0] if len(names) == 1 else "NAME"


def _annotate(about: ObjectRef, rule: KindRule, value: str, flags: Sequence[str]) -> str:
    is_namespace = (about.api_version, about.kind) == ("v1", "Namespace")
    name = ("namespace", about.name) if is_namespace else (f"{rule.name}/{about.name}",)
    place = ("-n", about.namespace) if about.namespace and not is_namespace else ()
    annotation = f"{ANNOTATION_DOMAIN}/{ARCHIVE}={value}"
    return _kubectl("annotate", "--overwrite", *name, annotation, *place, *flags)


def _doctor(chosen: "PolicyInForce", flags: Sequence[str]) -> str:
    policy = ("--policy", chosen.name) if chosen.is_local else ()
    return _kubectl("ttl", "doctor", *policy, *flags)


def _kubectl(*words: str) -> str:
    return f"`{shlex.join(('kubectl', *words))}`"
