"""The form of a task: an HTTP POST of the `timer.fired` event to the function `timers`, with an OIDC token."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from google.cloud import tasks_v2
from google.protobuf.timestamp_pb2 import Timestamp

from shared.adapters.events.cloudevents import event_of, to_http
from shared.core.values.traceparent import TRACEPARENT, find_traceparent
from shared.messages import Timer


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
