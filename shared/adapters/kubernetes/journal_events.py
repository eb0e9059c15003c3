"""The Kubernetes Events of the journal, as they are written; `journal_reading` reads them.

An Event is about one object, or it sums up a minute: how many objects of one kind in one namespace, by one source. Its
note is for people. An annotation has the same facts for programs: the data of the CloudEvent, or the count.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from shared.core.values.objects import ANNOTATION_DOMAIN, ObjectRef, format_instant
from shared.ports import EventLevel, JournalAction, JournalEntry

CONTROLLER = "ttl-after-finished"
"""The field `reportingController` of our Events."""

RECORD = f"{ANNOTATION_DOMAIN}/record"
"""The annotation of an Event about one object: the data of the CloudEvent about it, the refusal, or the report."""

COUNTED = f"{ANNOTATION_DOMAIN}/counted"
"""The annotation of an Event that sums up a minute."""

NOTE_BYTES_MAX = 1_024
"""Maximum size of the note of an Event, by the API server's validation."""

OTHER_SOURCES = "other sources"
"""The source of a sum of what has different sources, if a namespace has too many of them."""

_INSTANCE_CHARACTERS_MAX = 128
_NAME_CHARACTERS_MAX = 200


class SumKey(NamedTuple):
    """What the entries of one sum have in common."""

    namespace: str
    api_version: str
    kind: str
    action: str
    reason: str
    source: str
    policy: str
    level: EventLevel
    by: str


@dataclass(slots=True)
class Sum:
    """Entries that have no Event each.

    Attributes:
        count: Their number.
        first_at: When the first of them was noted.
        last_at: When the last of them was noted.
        last_id: The id of the last of them.
    """

    count: int
    first_at: datetime
    last_at: datetime
    last_id: str = ""

    def add(self, entry: JournalEntry) -> None:
        """Count one more entry, unless it repeats the last one: each object reports a problem of its Namespace."""
        repeated, self.last_id = self.last_id, entry.message.id
        self.count += self.last_id != repeated
        self.first_at, self.last_at = min(self.first_at, entry.at), max(self.last_at, entry.at)


def key_of(entry: JournalEntry) -> SumKey:
    """Return what an entry has in common with the others of its sum."""
    about = home_of(entry.ref), entry.ref.api_version, entry.ref.kind
    return SumKey(*about, entry.action, entry.reason, entry.source, entry.policy, entry.level, entry.by)


def home_of(ref: ObjectRef) -> str:
    """Return the namespace for which an entry is counted: a Namespace counts for itself, not with all others."""
    return ref.name if (ref.group, ref.kind) == ("", "Namespace") else ref.namespace


def event_of(entry: JournalEntry, instance: str) -> dict[str, Any]:
    """Return the Event about one object. Its name follows from the entry, so a repetition is a conflict.

    Args:
        entry: The entry.
        instance: The name of this process.
    """
    ref = entry.ref
    digest = _digest(ref.uid, str(ref), entry.action, entry.message.id)
    regarding = {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "uid": ref.uid,
    }
    metadata = {
        "name": f"{_name(ref.name)}.{digest}",
        "namespace": ref.namespace or "default",
        "annotations": {RECORD: entry.message.model_dump_json(by_alias=True)},
    }
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": metadata,
        "regarding": regarding,
        "eventTime": _micro_time(entry.at),
        "note": _shorten(entry.note),
        **_fields(entry.action, entry.reason, entry.level, _instance(entry.by, instance)),
    }


def event_of_sum(key: SumKey, total: Sum, instance: str, *, number: int) -> dict[str, Any]:
    """Return the Event that sums up entries. It is about their Namespace: about `default` if they have none.

    Args:
        key: What the entries have in common.
        total: Their number and their time.
        instance: The name of this process.
        number: The number of this sum in the process, so that no other sum has the same name.
    """
    namespace = key.namespace or "default"
    about = {
        "apiVersion": key.api_version,
        "kind": key.kind,
        "reason": key.reason,
        "source": key.source,
        "policy": key.policy,
        "count": total.count,
        "firstAt": format_instant(total.first_at),
        "lastAt": format_instant(total.last_at),
    }
    text = json.dumps(about)
    metadata = {
        "name": f"{_name(key.kind)}.{_digest(*key, instance, text, number)}",
        "namespace": namespace,
        "annotations": {COUNTED: text},
    }
    series = {"series": {"count": total.count, "lastObservedTime": _micro_time(total.last_at)}}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": metadata,
        "regarding": {"apiVersion": "v1", "kind": "Namespace", "namespace": namespace, "name": namespace},
        "eventTime": _micro_time(total.first_at),
        "note": _shorten(_describe_sum(key, total)),
        **_fields(key.action, key.reason, key.level, _instance(key.by, instance)),
        **(series if total.count > 1 else {}),  # the API server rejects a series of one
    }


def _fields(action: str, reason: str, level: EventLevel, instance: str) -> dict[str, str]:
    return {
        "action": action,
        "reason": reason,
        "type": level,
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
    }


def _describe_sum(key: SumKey, total: Sum) -> str:
    first, last = (format_instant(at.replace(microsecond=0)) for at in (total.first_at, total.last_at))
    scope = "" if key.namespace else " without a namespace"
    return (
        f"{total.count} more objects of kind {key.kind}{scope} {_describe_action(key)} from {first} to {last}"
        f"{_describe_source(key)}; too many in this time for an Event each"
    )


def _describe_action(key: SumKey) -> str:
    done = {"Delete": "deleted", "Stop": "stopped", "Refuse": "refused", "Report": f"with {key.reason}"}
    return done.get(key.action, "archived")


def _describe_source(key: SumKey) -> str:
    if key.action == JournalAction.REPORT:
        return ""
    policy = f" (policy {key.policy})" if key.policy else ""
    return f" by {key.source or 'an unknown source'}{policy}"


def _name(name: str) -> str:
    """Return a name of an object as a part of an Event's name, which has fewer characters."""
    return re.sub("[^a-z0-9]+", "-", name.lower())[:_NAME_CHARACTERS_MAX].strip("-") or "object"


def _instance(by: str, instance: str) -> str:
    return f"{by}/{instance}"[:_INSTANCE_CHARACTERS_MAX]


def _digest(*parts: object) -> str:
    return hashlib.sha256("/".join(map(str, parts)).encode(errors="replace")).hexdigest()[:16]


def _shorten(text: str) -> str:
    return text.encode(errors="replace")[:NOTE_BYTES_MAX].decode(errors="ignore")


def _micro_time(at: datetime) -> str:
    """Return an instant as a MicroTime, which always has six digits after the point."""
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06d}Z"
