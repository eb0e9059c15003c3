"""What the operator can do about an object that is kept because of its archive."""

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shared.core.decide import Decision, Reason
from shared.core.kinds.rule import KindRule
from shared.core.namespaces import ARCHIVE
from shared.core.objects import ANNOTATION_DOMAIN, ObjectRef

if TYPE_CHECKING:  # what is in force takes 100 ms to load, and `explain -f` needs none of it
    from shared.cli.deleters.in_force import PolicyInForce

ARCHIVE_REASONS = (Reason.NOT_ARCHIVED, Reason.INVALID_ARCHIVE)
"""The reasons about which this module advises."""


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
    return _command("annotate", "--overwrite", *name, annotation, *place, *flags)


def _doctor(chosen: "PolicyInForce", flags: Sequence[str]) -> str:
    policy = ("--policy", chosen.name) if chosen.is_local else ()
    return _command("ttl", "doctor", *policy, *flags)


def _command(*words: str) -> str:
    return f"`{shlex.join(('kubectl', *words))}`"
