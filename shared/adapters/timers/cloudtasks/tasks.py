"""Timers as tasks: HTTP POSTs of the `timer.fired` event to the function `timers`, with an OIDC token.

The name of a task:

    KEY-SECOND-NOW[-RANDOM]

KEY is a hash of the purpose and the uid. It comes first, because sequential prefixes make all calls slower (reference
of CreateTask). SECOND is when the task is to be sent, in microseconds, rounded up by `sent_at`. NOW is 1 if it is sent
at once, and 0 if it is sent at SECOND.

So all timers of one uid and purpose that are to be sent in the same second are one task, also by several processes, and
also if their due times differ. Its request is that of the first timer. This is harmless: the first timer is due by
then, and so are the others. Its function reads the object and decides; a stale proof is refused, and then the object is
read. Its attempts set the next back-off. They may be more than those of the other timers: then a limit of attempts,
such as `CHILD_ATTEMPTS_MAX`, is reached earlier, and the next sweep goes on. If this process's clock is behind, the
first timer may be due by it and another one not yet: the function sets that one again.

Cloud Tasks blocks a name for one hour to 24 hours after its task was executed or deleted. If a name is taken by such a
task, or by one that is being executed, the timer gets a RANDOM part: see `CloudTasksTimers`.

Older versions have the due time in place of SECOND, the number of attempts in place of NOW, and may have put up to 16
hexadecimal digits in place of RANDOM. They accept the names of this version.
"""

import re
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from google.cloud import tasks_v2
from google.protobuf.timestamp_pb2 import Timestamp

from shared.adapters.events.cloudevents import event_of, to_http
from shared.adapters.timers.stored import instant_of, key_of, microseconds, sent_at
from shared.core.values.traceparent import TRACEPARENT, find_traceparent
from shared.messages import Timer


def name_of(timer: Timer, at: datetime, *, is_now: bool = False) -> str:
    """Return the name of the task that sends a timer at `sent_at` of an instant, or now, which is that instant."""
    return f"{key_of(timer)}-{microseconds(sent_at(timer, at))}-{int(is_now)}"


def free_name_of(name: str) -> str:
    """Return a name that no other task has."""
    return f"{name}-{secrets.token_hex(8)}"


def is_name_of(timer: Timer, task: str) -> bool:
    """Return whether a task may send this timer by its name: a forged one names any task, at any length."""
    found = re.fullmatch(rf"{key_of(timer)}-(-?[0-9]{{1,20}})-[0-9]{{1,9}}(-[0-9a-f]{{1,16}})?", task)
    return found is not None and microseconds(timer.due_at) <= int(found[1])


def second_in(task: str) -> datetime:
    """Return SECOND of a name that `is_name_of` accepted: no task is scheduled for later."""
    found = re.match(r"[0-9a-f]+-(-?[0-9]{1,20})-", task)
    try:
        return instant_of(int(found[1]) if found else 0)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)


def key_in(path: str) -> str:
    """Return KEY of the full name of a task: all tasks of one timer have the same one."""
    return path.rpartition("/")[2].partition("-")[0]


@dataclass(frozen=True, slots=True)
class TaskForm:
    """Where the tasks of a queue are sent, and as whom.

    Attributes:
        queue: `projects/PROJECT/locations/LOCATION/queues/QUEUE`.
        target: The URL of the function `timers`.
        account: The e-mail of the service account of the token.
        audience: The audience of the token.
    """

    queue: str
    target: str
    account: str
    audience: str

    def make(self, timer: Timer, name: str, at: datetime, deadline_seconds: float) -> tasks_v2.Task:
        """Make a task.

        Args:
            timer: The timer that it sends.
            name: Its name within the queue.
            at: When it is sent; an instant in the past means now.
            deadline_seconds: How long Cloud Tasks waits for the answer: from 15 s to 30 min.
        """
        event = event_of(timer, source=f"//cloudtasks.googleapis.com/{self.queue}")
        # The Broker's `timer.fired` has none of the two, so `timers` never accepts an event that it has published.
        own = {"task": name, "scheduledat": at.isoformat()}
        headers, body = to_http(replace(event, extensions={**event.extensions, **own}))
        schedule_time = Timestamp()
        schedule_time.FromDatetime(at)
        return tasks_v2.Task(
            name=f"{self.queue}/tasks/{name}",
            schedule_time=schedule_time,
            dispatch_deadline=timedelta(seconds=deadline_seconds),
            http_request=tasks_v2.HttpRequest(
                url=self.target,
                http_method=tasks_v2.HttpMethod.POST,
                headers=headers,
                body=body,
                oidc_token=tasks_v2.OidcToken(service_account_email=self.account, audience=self.audience),
            ),
        )


def read_timer(task: tasks_v2.Task) -> Timer:
    """Return the timer of a task.

    Raises:
        ValueError: Another program made the task.
    """
    timer = Timer.model_validate_json(task.http_request.body)
    traceparent = find_traceparent(task.http_request.headers.get(f"ce-{TRACEPARENT}"))
    return timer.model_copy(update={"traceparent": traceparent}) if traceparent else timer
