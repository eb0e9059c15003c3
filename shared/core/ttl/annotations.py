"""The annotations of our domain. Any other is unknown, most likely a typing error, and is reported."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from shared.core.deadlines.deadline import (
    ACTIVE_DEADLINE,
    DEADLINE_EXCEEDED,
    ON_DEADLINE,
    PENDING_DEADLINE,
    STOPPED_GENERATION,
    STOPS,
    Stage,
)
from shared.core.decision.namespaces import ARCHIVE, DEFAULT_DEADLINES, MAX_DEADLINE, UNUSED, Namespace
from shared.core.ttl.edits import HELD_TTL
from shared.core.usage.mark import DELETED_AFTER, UNUSED_HASH, UNUSED_SINCE, USED_AT
from shared.core.values.objects import ANNOTATION_DOMAIN, get_annotations

_DURATION = "A duration or `never`"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one annotation means; docs/reference/annotations.md is made from it.

    Attributes:
        values: Which values it may have.
        example: One of them.
        does: What it does.
    """

    values: str
    example: str
    does: str


OF_OBJECTS: Mapping[str, Meaning] = {
    "hold": Meaning(
        "Any text",
        "looking at the numbers",
        "Keeps the object until the annotation is removed. The value is the reason.",
    ),
    "ttl": Meaning(_DURATION, "1h30m", "Sets the TTL: the time from the finish of the object to its deletion."),
    "ttl-succeeded": Meaning(_DURATION, "10m", "Sets the TTL if the object succeeded."),
    "ttl-failed": Meaning(_DURATION, "7d", "Sets the TTL if the object failed."),
    "expire-at": Meaning(
        "An RFC 3339 instant", "2026-01-02T03:04:05Z", "Sets the instant of the deletion. An unfinished object is kept."
    ),
    "owner": Meaning(
        "`ignore`",
        "ignore",
        "Deletes the object even if its controller owner has not finished. Other values do nothing.",
    ),
    ARCHIVE: Meaning(
        "`true`, `false`, or the name of an archive of the policy",
        "main",
        "Whether and where the object is archived before its deletion. `true` means the archive of the policy rule, or "
        "the only archive of the policy. With another value, the object is kept.",
    ),
    ACTIVE_DEADLINE: Meaning(
        "A duration of more than 0, or `never`",
        "6h",
        "Sets the deadline: how long the object may run, from its start or its last resume. Then it is stopped.",
    ),
    PENDING_DEADLINE: Meaning(
        "A duration of more than 0, or `never`",
        "1h",
        "Sets the pending deadline: how long a Pod of which no container has ever run may wait for its start. On an "
        "object of another kind, it is an invalid value.",
    ),
    ON_DEADLINE: Meaning(
        "`stop`, `suspend` or `delete`", "delete", "Sets what is done at either deadline. The default is `stop`."
    ),
    DEADLINE_EXCEEDED: Meaning(
        "An RFC 3339 instant, written by `enforce`",
        "2026-01-02T03:04:05Z",
        "The instant at which the object was stopped at its deadline. Remove it to let the object be stopped again.",
    ),
    STOPPED_GENERATION: Meaning(
        "A number, written by `enforce`",
        "2",
        "The `metadata.generation` after the stop. If the object has another one, it was changed after the stop.",
    ),
    STOPS: Meaning("A number, written by `enforce`", "1", "How often the object was stopped at its deadline."),
    HELD_TTL: Meaning(
        "A JSON object, written by `kubectl ttl hold` and `archive restore`",
        '{"spec.ttlSecondsAfterFinished": 3600}',
        "Holds the values of the kind's own TTL fields that they removed. `release` writes them back.",
    ),
    UNUSED_SINCE: Meaning(
        "An RFC 3339 instant, written by `usage`",
        "2026-01-02T03:04:05Z",
        "The instant since which nothing refers to this Secret or ConfigMap. Remove it to start its TTL again.",
    ),
    UNUSED_HASH: Meaning(
        "A hexadecimal number, written by `usage`",
        "9f86d081884c7d659a2feaa0c55ad015",
        "A hash of the writes of all other clients before the mark. If it differs from the hash of the present writes, "
        "this Secret or ConfigMap was changed, and is marked again.",
    ),
    USED_AT: Meaning(
        "An RFC 3339 instant, written by `usage`",
        "2026-01-02T03:04:05Z",
        "The first time that this Secret or ConfigMap was seen used. Without it, it is never deleted as unused, unless "
        "a newer generation is used or a rule says so.",
    ),
    DELETED_AFTER: Meaning(
        "An RFC 3339 instant, written by `usage`",
        "2026-01-08T03:04:05Z",
        "The deletion of this unused Secret or ConfigMap is announced: it is deleted after this instant, unless an "
        "object refers to it.",
    ),
}
"""On objects, without their domain."""

OF_NAMESPACES: Mapping[str, Meaning] = {
    "default-ttl": Meaning(_DURATION, "1d", "Sets the TTL of objects for which no other source sets one."),
    "default-ttl-succeeded": Meaning(_DURATION, "1h", "The same for objects that succeeded."),
    "default-ttl-failed": Meaning(_DURATION, "7d", "The same for objects that failed."),
    "max-ttl": Meaning(
        "A duration", "30d", "The longest TTL of objects in the namespace. A longer one is shortened to it."
    ),
    DEFAULT_DEADLINES[Stage.ACTIVE]: Meaning(
        "A duration of more than 0, or `never`",
        "1d",
        "Sets the active deadline of objects for which no other source sets one.",
    ),
    DEFAULT_DEADLINES[Stage.PENDING]: Meaning(
        "A duration of more than 0, or `never`",
        "1h",
        "The same for the pending deadline, of the kinds that have one.",
    ),
    MAX_DEADLINE: Meaning(
        "A duration of more than 0",
        "7d",
        "The longest active deadline in the namespace. A longer one is shortened to it.",
    ),
    ARCHIVE: Meaning(
        "`true`, `false`, or the name of an archive of the policy",
        "main",
        "The same as on an object, for all objects in the namespace without an annotation of their own.",
    ),
    "exempt": Meaning("`true` or `false`", "true", "If `true`, every object in the namespace is kept."),
    UNUSED: Meaning(
        "`true` or `false`",
        "true",
        "If `true`, a policy rule with `unused` may have Secrets and ConfigMaps of the namespace deleted. If `false`, "
        "no rule has. Without it, a rule has to name the namespace.",
    ),
}
"""On Namespaces, without their domain, beside those on objects: your own kind rule may match Namespaces."""


def describe_unknown(obj: Any) -> list[str]:
    """One sentence for each unknown annotation of the domain on an object."""
    return [_sentence(name, "", OF_OBJECTS) for name in get_annotations(obj) if name not in OF_OBJECTS]


def describe_unknown_of(namespace: Namespace) -> list[str]:
    """One sentence for each unknown annotation of the domain on a Namespace."""
    names = get_annotations({"metadata": {"annotations": namespace.annotations}})
    where = f" of namespace {namespace.ref.name}"
    return [_sentence(name, where, OF_NAMESPACES) for name in names if name not in (*OF_NAMESPACES, *OF_OBJECTS)]


def _sentence(name: str, where: str, known: Collection[str]) -> str:
    return f"unknown annotation {ANNOTATION_DOMAIN}/{name}{where}: expected one of {', '.join(known)}"
