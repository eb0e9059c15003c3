"""A server with the calls of Google Cloud Tasks that the timer engine makes, on loopback, with the documented limits.

Not Google's server: what it does comes from https://cloud.google.com/tasks/docs/quotas and from the reference of the
client library. It was never compared with the real service.

    a name       is blocked while its task lives, and for an hour after
    a task       at most 1 MB, at most 30 days ahead, deleted after 31 days, at most max_attempts dispatches
    a queue      at most 500 dispatches a second; paused, it dispatches nothing
    a dispatch   an HTTP request with an OIDC token of the account; any answer but 2xx is retried with back-off
"""

import asyncio
import heapq
import itertools
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import grpc
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

QUEUE = "projects/p/locations/europe-west1/queues/timers"

TOMBSTONE = timedelta(hours=1)
AHEAD_MAX = timedelta(days=30)
RETENTION = timedelta(days=31)
TASK_BYTES_MAX = 1_000_000
PAGE_MAX = 1_000
RATE_MAX = 500.0
_TASK_ID = re.compile(r"[A-Za-z0-9_-]{1,500}")
_SERVICE = "google.cloud.tasks.v2.CloudTasks"
_METADATA = "grpc-status-details-bin"


@dataclass
class Kept:
    """A task of the queue.

    Attributes:
        at: When it is dispatched next.
        attempts: How often it was dispatched.
        is_out: It was dispatched, and the answer is not there yet.
    """

    task: tasks_v2.Task
    created_at: datetime
    at: datetime
    attempts: int = 0
    is_out: bool = False


@dataclass(frozen=True)
class Refusal:
    """What the server answers to the next call of a method."""

    code: grpc.StatusCode
    message: str = "refused by the test"
    retry_seconds: float | None = None


@dataclass
class Dispatch:
    """A dispatch, and its answer; 0 without one."""

    name: str
    at: datetime
    headers: Mapping[str, str]
    status: int = 0


@dataclass
class TasksServer:
    """A queue, and what tests change about it.

    Attributes:
        sign: Makes the OIDC token of an account for an audience.
        shift: What this server's clock is ahead of the machine's.
        refusals: By method: what its next calls are answered with.
        lost: By method: how many of its next calls are made, but not answered in time.
        calls: How often each method was called.
        dispatches: All dispatches.
        has_queue: Whether the queue exists.
        state: The state of the queue.
        max_attempts: Dispatches of a task; -1 for any number.
        rate: Dispatches a second.
        backoff: The least and the longest wait after a failed dispatch, in seconds.
    """

    sign: Callable[[str, str], str] = lambda account, audience: f"token of {account} for {audience}"
    shift: timedelta = timedelta()
    refusals: dict[str, deque[Refusal]] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    dispatches: list[Dispatch] = field(default_factory=list)
    has_queue: bool = True
    state: int = tasks_v2.Queue.State.RUNNING
    max_attempts: int = -1
    rate: float = RATE_MAX
    backoff: tuple[float, float] = (0.1, 1.0)
    tasks: dict[str, Kept] = field(default_factory=dict)
    tombstones: dict[str, datetime] = field(default_factory=dict)
    address: str = ""

    def __post_init__(self) -> None:
        self._heap: list[tuple[datetime, int, str]] = []
        self._order = itertools.count()
        self._wake = asyncio.Event()
        self._out: set[asyncio.Task[None]] = set()
        self._tokens: set[str] = set()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.shift

    async def connect(self) -> tasks_v2.CloudTasksAsyncClient:
        """A client of Google's library, without credentials."""
        channel = grpc.aio.insecure_channel(self.address)
        return tasks_v2.CloudTasksAsyncClient(transport=CloudTasksGrpcAsyncIOTransport(channel=channel))

    def refuse(self, method: str, code: grpc.StatusCode, *, times: int = 1, **how: Any) -> None:
        """Refuse the next calls of a method."""
        self.refusals.setdefault(method, deque()).extend([Refusal(code, **how)] * times)

    def names(self) -> list[str]:
        """The ids of the tasks."""
        return [path.rpartition("/")[2] for path in self.tasks]

    # The calls

    async def create_task(self, request: tasks_v2.CreateTaskRequest, call: grpc.aio.ServicerContext) -> tasks_v2.Task:
        task, now = request.task, self.now()
        if not self.has_queue or request.parent != QUEUE:
            await call.abort(grpc.StatusCode.NOT_FOUND, "Queue does not exist.")
        parent, _, task_id = task.name.rpartition("/tasks/")
        if parent != QUEUE or not _TASK_ID.fullmatch(task_id):
            await call.abort(grpc.StatusCode.INVALID_ARGUMENT, f"Invalid task name {task.name}")
        if tasks_v2.Task.pb(task).ByteSize() > TASK_BYTES_MAX:
            await call.abort(grpc.StatusCode.INVALID_ARGUMENT, "Task size too large")
        if task.dispatch_deadline and not 15 <= task.dispatch_deadline.total_seconds() <= 1_800:
            await call.abort(grpc.StatusCode.INVALID_ARGUMENT, "The dispatch deadline must be in [15s, 30m]")
        at = _instant(task.schedule_time) if task.schedule_time else now
        if at > now + AHEAD_MAX:
            await call.abort(grpc.StatusCode.INVALID_ARGUMENT, "The schedule time must be within 30 days")
        if task.name in self.tasks or self.tombstones.get(task.name, now) > now:
            await call.abort(grpc.StatusCode.ALREADY_EXISTS, "Requested entity already exists")
        kept = self.tasks[task.name] = Kept(task, now, max(at, now))
        self._plan(kept)
        return task

    async def get_task(self, request: tasks_v2.GetTaskRequest, call: grpc.aio.ServicerContext) -> tasks_v2.Task:
        if request.name not in self.tasks:
            await call.abort(grpc.StatusCode.NOT_FOUND, "Requested entity was not found.")
        return self._shown(self.tasks[request.name], request.response_view)

    async def list_tasks(
        self, request: tasks_v2.ListTasksRequest, call: grpc.aio.ServicerContext
    ) -> tasks_v2.ListTasksResponse:
        if request.page_token and request.page_token not in self._tokens:
            await call.abort(grpc.StatusCode.INVALID_ARGUMENT, "Invalid page token")
        size = min(request.page_size or PAGE_MAX, PAGE_MAX)
        paths = sorted(path for path in self.tasks if path > request.page_token)
        token = paths[size - 1] if len(paths) > size else ""
        self._tokens.add(token)
        shown = [self._shown(self.tasks[path], request.response_view) for path in paths[:size]]
        return tasks_v2.ListTasksResponse(tasks=shown, next_page_token=token)

    async def get_queue(self, request: tasks_v2.GetQueueRequest, call: grpc.aio.ServicerContext) -> tasks_v2.Queue:
        if not self.has_queue or request.name != QUEUE:
            await call.abort(grpc.StatusCode.NOT_FOUND, "Queue does not exist.")
        retry = tasks_v2.RetryConfig(max_attempts=self.max_attempts)
        return tasks_v2.Queue(name=QUEUE, state=self.state, retry_config=retry)

    async def answer(self, method: str, call: grpc.aio.ServicerContext) -> None:
        """Count a call, and refuse it if a test wants that."""
        self.calls[method] += 1
        if not (waiting := self.refusals.get(method)):
            return
        refusal = waiting.popleft()
        if refusal.retry_seconds is not None:
            info, detail = RetryInfo(retry_delay=Duration(seconds=int(refusal.retry_seconds))), AnyMessage()
            detail.Pack(info)
            status = Status(code=refusal.code.value[0], message=refusal.message, details=[detail])
            call.set_trailing_metadata(((_METADATA, status.SerializeToString()),))
        await call.abort(refusal.code, refusal.message)

    def _shown(self, kept: Kept, view: tasks_v2.Task.View) -> tasks_v2.Task:
        task = tasks_v2.Task(
            name=kept.task.name, schedule_time=kept.at, dispatch_count=kept.attempts, create_time=kept.created_at
        )
        if view == tasks_v2.Task.View.FULL:
            task.http_request = kept.task.http_request
        return task

    # Dispatching

    async def dispatch(self, session: aiohttp.ClientSession) -> None:
        """Send due tasks until cancelled."""
        try:
            while True:
                self._wake.clear()
                while self._heap and self._heap[0][0] <= self.now() and self.state == tasks_v2.Queue.State.RUNNING:
                    at, _, path = heapq.heappop(self._heap)
                    kept = self.tasks.get(path)
                    if kept is None or kept.at != at or kept.is_out:
                        continue  # planned again
                    sending = asyncio.create_task(self._send(session, kept))
                    self._out.add(sending)
                    sending.add_done_callback(self._out.discard)
                    await asyncio.sleep(1 / self.rate)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02):  # a test may shift the clock
                        await self._wake.wait()
        finally:
            for sending in self._out:
                sending.cancel()
            await asyncio.gather(*self._out, return_exceptions=True)

    async def _send(self, session: aiohttp.ClientSession, kept: Kept) -> None:
        task, request = kept.task, kept.task.http_request
        if self.now() > kept.created_at + RETENTION:
            return self._end(task.name)
        token = self.sign(request.oidc_token.service_account_email, request.oidc_token.audience or request.url)
        headers = {
            **request.headers,
            "authorization": f"Bearer {token}",
            "x-cloudtasks-taskname": task.name.rpartition("/")[2],
            "x-cloudtasks-taskretrycount": str(kept.attempts),
        }
        kept.attempts += 1
        kept.is_out = True
        dispatch = Dispatch(task.name, self.now(), headers)
        self.dispatches.append(dispatch)
        try:
            deadline = aiohttp.ClientTimeout(total=task.dispatch_deadline.total_seconds())
            async with session.post(request.url, data=request.body, headers=headers, timeout=deadline) as response:
                await response.read()
                dispatch.status = response.status
        except (aiohttp.ClientError, TimeoutError):
            pass
        kept.is_out = False
        if self.tasks.get(task.name) is not kept:  # a test has removed it
            return None
        if 200 <= dispatch.status < 300 or kept.attempts == self.max_attempts:
            return self._end(task.name)
        least, longest = self.backoff
        kept.at = self.now() + timedelta(seconds=min(longest, least * 2 ** min(kept.attempts - 1, 16)))
        return self._plan(kept)

    def _plan(self, kept: Kept) -> None:
        heapq.heappush(self._heap, (kept.at, next(self._order), kept.task.name))
        self._wake.set()

    def _end(self, path: str) -> None:
        del self.tasks[path]
        self.tombstones[path] = self.now() + TOMBSTONE


@asynccontextmanager
async def serving_tasks(server: TasksServer, session: aiohttp.ClientSession) -> AsyncIterator[TasksServer]:
    """Serve until the block ends, on a free port of loopback; the session sends the tasks."""
    grpc_server = grpc.aio.server()
    methods: dict[str, tuple[Any, Any, Any]] = {
        "CreateTask": (server.create_task, tasks_v2.CreateTaskRequest, tasks_v2.Task.serialize),
        "GetTask": (server.get_task, tasks_v2.GetTaskRequest, tasks_v2.Task.serialize),
        "ListTasks": (server.list_tasks, tasks_v2.ListTasksRequest, tasks_v2.ListTasksResponse.serialize),
        "GetQueue": (server.get_queue, tasks_v2.GetQueueRequest, tasks_v2.Queue.serialize),
    }
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            _method(server, name, call), request_deserializer=request.deserialize, response_serializer=serialize
        )
        for name, (call, request, serialize) in methods.items()
    }
    grpc_server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    server.address = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    await grpc_server.start()
    dispatching = asyncio.create_task(server.dispatch(session))
    try:
        yield server
    finally:
        dispatching.cancel()
        with suppress(asyncio.CancelledError):
            await dispatching
        await grpc_server.stop(None)


def _method(
    server: TasksServer, name: str, call: Callable[[Any, Any], Awaitable[Any]]
) -> Callable[[Any, Any], Awaitable[Any]]:
    async def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
        await server.answer(name, context)
        answered = await call(request, context)
        if server.lost[name]:
            server.lost[name] -= 1
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "lost by the test")
        return answered

    return handle


def _instant(value: Any) -> datetime:
    return datetime.fromtimestamp(value.timestamp(), UTC)
