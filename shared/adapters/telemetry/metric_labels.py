"""The labels of the metrics: what each means, and the values that are known.

A label never has the name of an object or free text, so a sender of events cannot add values. A value that is not
known is `other`.
"""

from http import HTTPStatus

from shared.adapters.events.cloudevents import SOURCED, TICK
from shared.messages import ObjectDeleted, SweepStep, Timer, TimersSet

OTHER = "other"
"""The value of a label if the real value is not known."""

LABELS = {
    "by": "The function that acted: `schedule`, `expire`, `sweep` or `timers`.",
    "code": "The HTTP status of the last answer to the event.",
    "function": "The function that answered.",
    "kind": "A known kind. If several groups have a kind of this name, with the group: `Backup.velero.io`.",
    "problem": "The message of the log line.",
    "reason": "Why: see reasons.md. For the verdict `failed` it is the name of the error class.",
    "result": "`accepted` or `failed`.",
    "status": "The HTTP status of the answer. After a 503 the Broker tries again later.",
    "type": "The type of the CloudEvent: see events.md.",
    "verdict": "What was done about the object.",
    "version": "The version of ttl-after-finished.",
}
"""What each label means."""

EVENT_TYPES = {TICK, *SOURCED, *(message.type for message in (Timer, TimersSet, ObjectDeleted, SweepStep))}
"""The types of the CloudEvents of this project."""

STATUSES = frozenset(str(status.value) for status in HTTPStatus)
"""All HTTP statuses."""
