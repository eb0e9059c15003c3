"""What people can do about an object: a command where there is one."""

import shlex
from collections.abc import Container, Mapping
from string import Formatter

from shared.core.decide import Decision, Reason
from shared.core.kinds.rule import KindRule
from shared.core.objects import ANNOTATION_DOMAIN, ObjectRef
from shared.core.ttl.edits import HELD_TTL

_TO_KEEP = "to keep it: {hold}"
_ADVICE: Mapping[Reason, str] = {
    Reason.EXPIRED: _TO_KEEP,
    Reason.NOT_DUE: _TO_KEEP,
    Reason.SERVER_CLOCK_AHEAD: "set the clock that is wrong; ttl-after-finished doctor compares the two",
    Reason.HELD: "{release} ends the hold",
    Reason.INVALID_TTL: "mend that; {unset} takes back what its annotations say",
    Reason.INVALID_POLICY: "mend that: until then it stays",
    Reason.NO_TTL: "{set} has it deleted an hour after it finished",
    Reason.NEVER: "{set} has it deleted an hour after it finished",
    Reason.FINISH_TIME_UNKNOWN: "{at}, with an instant of yours, needs no finish time",
    Reason.EXEMPT: "{include} ends that for all that is in the namespace",
    Reason.NAMESPACE_UNREAD: "ask as somebody who may get namespaces",
    Reason.OWNER_UNFINISHED: "wait for the owner, or do without: {disown}",
    Reason.DISPATCHED: "wait for the cluster that sent it, or allow it by a policy rule with `onDispatched: delete`",
    Reason.AGGREGATED_API: "let `list` of apiservices be allowed; or write a rule with `preconditions: honoured`",
    Reason.KEPT_LAST: "wait: it goes once enough newer ones have finished",
    Reason.UNKNOWN_SHAPE: "{kinds} says what is known of its kind; a rule of yours may say more",
}

_UNREADABLE_PARKED = "{forget} removes what cannot be read, and {set} then sets a TTL"
_UNREADABLE_HELD = "{forget} removes what cannot be read, and {release} then ends the hold; set its former TTL again"


def advise(
    decision: Decision,
    ref: ObjectRef,
    rule: KindRule,
    *,
    flags: tuple[str, ...] = (),
    is_parked: bool = False,
    is_readable: bool = True,
) -> str:
    """What to do where the decision is not what was wanted; empty where nothing can be done.

    Args:
        decision: About the object.
        ref: The object.
        rule: Its kind.
        flags: What leads kubectl to its cluster.
        is_parked: Whether a TTL waits for a release that nobody asked for.
        is_readable: Whether the TTL that a hold put aside can be read; a release needs it.
    """
    template = _ADVICE.get(decision.reason, "")
    if field := decision.facts.overridden:
        template = "" if field.startswith("status.") else _TO_KEEP
    if is_parked:
        template = "{release} puts it back"
    if not is_readable:
        template = _UNREADABLE_PARKED if is_parked else _UNREADABLE_HELD
    named = {about for _, about, _, _ in Formatter().parse(template) if about}
    return template.format_map(_commands(named, ref, rule, flags))


def _commands(named: Container[str], ref: ObjectRef, rule: KindRule, flags: tuple[str, ...]) -> Mapping[str, str]:
    """Those that are named: quoting all takes a tenth of the time of `explain -f`."""
    name, place = f"{rule.name}/{ref.name}", ("-n", ref.namespace) if ref.namespace else ()
    words = {
        "hold": ("ttl", "hold", name, "--reason", "WHY", *place),
        "release": ("ttl", "release", name, *place),
        "set": ("ttl", "set", name, "1h", *place),
        "at": ("ttl", "set", name, "2026-01-02T03:04:05Z", *place),
        "unset": ("ttl", "set", name, "--unset", *place),
        "forget": ("annotate", name, f"{ANNOTATION_DOMAIN}/{HELD_TTL}-", *place),
        "disown": ("annotate", name, f"{ANNOTATION_DOMAIN}/owner=ignore", *place),
        "include": ("annotate", "namespace", ref.namespace, f"{ANNOTATION_DOMAIN}/exempt-"),
    }
    told = {about: f"`{shlex.join(('kubectl', *said, *flags))}`" for about, said in words.items() if about in named}
    return {**told, "kinds": f"`kubectl ttl kinds {rule.name}`"}  # asks no cluster
