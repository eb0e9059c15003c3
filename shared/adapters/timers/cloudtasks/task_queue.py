"""The calls to Cloud Tasks for one queue, with errors that say what to do."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import google.auth
from google.api_core import exceptions as google_errors
from google.api_core.retry_async import AsyncRetry
from google.auth.exceptions import GoogleAuthError
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport
from google.rpc.error_details_pb2 import RetryInfo

from shared.core.values.timing import backoff_seconds
from shared.errors import EventError, TryLaterError, TtlError

CALL_SECONDS_MAX = 4.0
"""Timeout of a call, repeats included: shorter than the 10 s that the Trigger of `timers` waits."""

CALLS_AT_ONCE = 64
"""Maximum number of concurrent calls: each gets its answer long before its timeout."""

TASKS_OF_ONE_PAGE_MAX = 1_000
"""Maximum number of tasks in one answer of Cloud Tasks (reference of `ListTasksRequest.page_size`)."""

REFUSED_RETRY_SECONDS = 10.0
"""Retry-After if a right or the queue is missing: an operator may add it."""

RIGHTS = "cloudtasks.queues.get and cloudtasks.tasks.{create,fullView,get,list}"
"""The permissions that the account of `timers` needs on the queue."""

UNLIMITED = -1
"""Cloud Tasks' number for any number of attempts."""

Connect = Callable[[], Awaitable[tasks_v2.CloudTasksAsyncClient]]
"""Makes a client in the running event loop."""

# Without a name, a repeated CreateTask could make two tasks. With one, it is safe.
_RETRY = AsyncRetry(
    predicate=lambda error: isinstance(error, google_errors.ServiceUnavailable),
    initial=0.1,
    maximum=1.0,
    multiplier=2.0,
    timeout=CALL_SECONDS_MAX,
)
_log = logging.getLogger("ttl")


async def connect() -> tasks_v2.CloudTasksAsyncClient:
    """Connect with the account of this process, as Google's libraries find it: on Cloud Run, that of the service.

    Raises:
        TtlError: There is no such account.
    """
    try:
        credentials, _ = await asyncio.to_thread(google.auth.default)  # it may ask the metadata server
    except GoogleAuthError as error:
        raise TtlError(
            f"cannot call Cloud Tasks without a Google account: {_line(error)}; run `timers` as a service account"
        ) from None
    return tasks_v2.CloudTasksAsyncClient(credentials=credentials)


class TaskQueue:
    """A queue of Cloud Tasks.

    Args:
        name: `projects/PROJECT/locations/LOCATION/queues/QUEUE`.
        connect: Makes the client when it is first needed.
    """

    def __init__(self, name: str, connect: Connect = connect) -> None:
        self.name = name
        self._connect = connect
        self._connecting = asyncio.Lock()
        self._client: tasks_v2.CloudTasksAsyncClient | None = None
        self._turns = asyncio.Semaphore(CALLS_AT_ONCE)
        self._closed = False

    async def check(self) -> None:
        """Check that the queue exists, and that it dispatches and retries tasks; again until Cloud Tasks answers.

        Raises:
            TtlError: There is no such queue, or the right to read it is missing.
        """
        for attempts in itertools.count():
            try:
                async with self._calling() as client:
                    queue = await client.get_queue(name=self.name, retry=_RETRY, timeout=CALL_SECONDS_MAX)
                break
            except _RefusedError as error:
                raise TtlError(str(error)) from None
            except TryLaterError as error:
                seconds = backoff_seconds(attempts, least=error.retry_after_seconds)
                self._warn("queue of timers not checked", error=str(error), retry_seconds=seconds)
                await asyncio.sleep(seconds)
        place = "{3} --location={1}".format(*self.name.split("/")[2:])
        if queue.state != tasks_v2.Queue.State.RUNNING:
            fix = f"gcloud tasks queues resume {place}"
            self._warn("the queue of timers is paused or disabled, so no timer fires", state=queue.state.name, fix=fix)
        if (attempts := queue.retry_config.max_attempts) != UNLIMITED:
            fix = f"gcloud tasks queues update {place} --max-attempts=unlimited"
            self._warn("queue of timers drops tasks after some attempts", max_attempts=attempts, fix=fix)

    async def create(self, task: tasks_v2.Task) -> bool:
        """Create a task; return False if its name is in use, or was in use until recently.

        Raises:
            TryLaterError: The task cannot be created now.
            EventError: Cloud Tasks refuses the task.
        """
        try:
            async with self._calling() as client:
                await client.create_task(parent=self.name, task=task, retry=_RETRY, timeout=CALL_SECONDS_MAX)
        except google_errors.AlreadyExists:
            return False
        return True

    async def sent(self, name: str) -> int | None:
        """Return how often a task was sent, including now; None if it does not exist.

        Raises:
            TryLaterError: Cloud Tasks does not answer, or refuses the call.
        """
        try:
            async with self._calling() as client:
                task = await client.get_task(name=f"{self.name}/tasks/{name}", retry=_RETRY, timeout=CALL_SECONDS_MAX)
        except _AbsentError:
            return None
        return int(task.dispatch_count)

    async def read(self, after: str, limit: int, *, full: bool) -> tuple[list[tasks_v2.Task], str]:
        """Read a page of tasks, in any order; return them, and the position of the next page.

        Args:
            after: The position; empty for the first page.
            limit: The maximum number of tasks; the answer may have fewer.
            full: Whether to read the requests of the tasks.

        Raises:
            TryLaterError: The tasks cannot be read now.
            ValueError: `after` is not a position.
        """
        view = tasks_v2.Task.View.FULL if full else tasks_v2.Task.View.BASIC
        size = min(limit, TASKS_OF_ONE_PAGE_MAX)
        request = tasks_v2.ListTasksRequest(parent=self.name, page_size=size, page_token=after, response_view=view)
        try:
            async with self._calling() as client:
                page = await client.list_tasks(request, retry=_RETRY, timeout=CALL_SECONDS_MAX)
        except EventError:
            raise ValueError(f"expected a position in the queue of the timers, got {after!r}") from None
        return list(page.tasks), page.next_page_token

    async def close(self) -> None:
        """End the calls in progress, and close the connection."""
        async with self._connecting:
            self._closed = True
        if self._client:
            transport = cast(CloudTasksGrpcAsyncIOTransport, self._client.transport)
            await transport.grpc_channel.close(CALL_SECONDS_MAX)

    async def _open(self) -> tasks_v2.CloudTasksAsyncClient:
        async with self._connecting:
            if self._closed:
                raise TryLaterError("the timer engine is stopping")
            if self._client is None:
                self._client = await self._connect()
            return self._client

    @asynccontextmanager
    async def _calling(self) -> AsyncIterator[tasks_v2.CloudTasksAsyncClient]:
        """Wait for its turn, and translate the errors of Google's client; AlreadyExists is left to the caller."""
        client = await self._open()
        try:
            async with self._turns:
                yield client
        except google_errors.AlreadyExists:
            raise
        except google_errors.NotFound as error:
            raise _AbsentError(
                f"there is no queue {self.name}: {_line(error)}; create it: gcloud tasks queues create"
            ) from None
        except (google_errors.PermissionDenied, google_errors.Unauthenticated) as error:
            fix = f"grant this process's account {RIGHTS}, and iam.serviceAccounts.actAs on TTL_TASKS_ACCOUNT"
            raise _RefusedError(f"{self.name} refuses this process: {_line(error)}; {fix}") from None
        except google_errors.InvalidArgument as error:
            raise EventError(f"Cloud Tasks refused the timer: {_line(error)}") from None
        except (google_errors.GoogleAPIError, GoogleAuthError) as error:
            raise TryLaterError(f"{self.name}: {_line(error)}", retry_after_seconds=_retry_seconds(error)) from None

    def _warn(self, message: str, **fields: object) -> None:
        _log.warning(message, extra={"fields": {"queue": self.name, **fields}})


class _RefusedError(TryLaterError):
    """A right or the queue is missing; an operator may add it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_seconds=REFUSED_RETRY_SECONDS)


class _AbsentError(_RefusedError):
    """The queue is missing, or the task that a call names."""


def _retry_seconds(error: Exception) -> float:
    """Return the pause that an answer asks for; a second without one."""
    found = error.details if isinstance(error, google_errors.GoogleAPICallError) else ()
    return next((one.retry_delay.ToTimedelta().total_seconds() for one in found if isinstance(one, RetryInfo)), 1.0)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
