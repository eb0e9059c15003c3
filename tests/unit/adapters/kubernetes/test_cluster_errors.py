"""The cluster adapter against a scripted API server, over a real connection."""

import asyncio
import base64
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from shared.adapters import clock
from shared.adapters.http_client import RedirectError
from shared.adapters.kubernetes import bodies, discovery
from shared.adapters.kubernetes import cluster as adapter
from shared.adapters.kubernetes import requests as apiserver
from shared.adapters.kubernetes.bodies import GoneError, TooLargeError, UnreadableError
from shared.adapters.kubernetes.cluster import Memory
from shared.adapters.kubernetes.connect import connect
from shared.adapters.kubernetes.transport import API_CONNECTIONS_MAX
from shared.core.values import jsontext
from shared.core.values.objects import ObjectRef, format_instant, ref_of
from shared.errors import AbsentKindError, ConflictError, ForbiddenError, GuardError, PermanentError, TryLaterError
from tests.builders import JOB, NOW, POD, having, job
from tests.loopback import answering_with, elsewhere

pytestmark = pytest.mark.anyio

DATE = format_datetime(NOW, usegmt=True)
OBJ = job()
REF = ref_of(OBJ)
EMPTY = {"metadata": {"resourceVersion": "7"}, "items": []}


def status(code, message="", **metadata):
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message, "metadata": metadata}
    return {"status": code, "json": body}


@dataclass
class Script:
    """Answers in turn, the last one again and again; an event is an answer that waits for it.

    `drop` closes the connection, `cut` closes it within the answer, and `trickle` never ends the answer.

    `before` is called before each answer.
    """

    answers: list
    url: str = ""
    asked: list = field(default_factory=list)
    bodies: list = field(default_factory=list)
    headers: list = field(default_factory=list)
    clients: set = field(default_factory=set)
    before: Callable[[], None] = lambda: None
    more: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until_asked(self, times):
        async with self.more:
            await self.more.wait_for(lambda: len(self.asked) >= times)

    async def handle(self, request):
        async with self.more:
            self.asked.append((request.method, request.raw_path))
            self.more.notify_all()
        self.bodies.append(await request.read())
        self.headers.append(request.headers)
        self.clients.add(request.transport.get_extra_info("peername"))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.before()
        if answer == "drop":
            request.transport.abort()
            return web.Response()
        if answer == "cut":
            response = web.StreamResponse(headers={"date": DATE, "content-length": "100"})
            await response.prepare(request)
            await response.write(b'{"a":')  # it is in the kernel then, before the end of the connection
            request.transport.abort()
            return response
        if answer == "trickle":
            response = web.StreamResponse(headers={"date": DATE})
            await response.prepare(request)
            while True:
                await response.write(b" ")
                await asyncio.sleep(0.01)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            answer = {"json": OBJ}
        options = {"headers": {"date": DATE}, "status": 200, **answer}
        if "json" in options:
            options |= {"text": json.dumps(options.pop("json")), "content_type": "application/json"}
        return web.Response(**options)


@pytest.fixture
async def script():
    script = Script([{"json": OBJ}])
    async with answering_with(script.handle, shutdown_timeout=0.1) as script.url:
        yield script


@dataclass
class Deadline:
    """The clock of the send deadlines; only a test moves it.

    The limits are a minute, because the client measures them by the clock of its event loop, too.
    """

    limit: float = 60.0
    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def pass_by(self, part: float = 1.0) -> None:
        """Let a part of the limit pass, and a little more."""
        self.seconds += part * self.limit + 0.1


@pytest.fixture(autouse=True)
def deadline(monkeypatch):
    deadline = Deadline()
    monkeypatch.setattr(adapter, "LEAVE_SECONDS_MAX", deadline.limit)
    monkeypatch.setattr(clock, "READ_SECONDS_MAX", deadline.limit)
    monkeypatch.setattr(discovery, "DISCOVERY_SECONDS_MAX", deadline.limit)
    for module in (adapter, apiserver):
        monkeypatch.setattr(module, "time", deadline)
    return deadline


def kubeconfig(server="https://127.0.0.1:1", *, user="{}", cluster="", context="{cluster: here, user: me}"):
    return f"""
apiVersion: v1
kind: Config
current-context: test
contexts: [{{name: test, context: {context}}}]
clusters: [{{name: here, cluster: {cluster or "{server: '" + server + "'}"}}}]
users: [{{name: me, user: {user}}}]
"""


async def connected_to(url, tmp_path, **options):
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(url, user="{token: secret}"))
    return await connect(kubeconfig=str(path), **options)


@pytest.fixture
async def cluster(script, tmp_path):
    cluster = await connected_to(script.url, tmp_path, memory=Memory())
    yield cluster
    await cluster.close()


# Errors


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (status(400, "bad continue token"), PermanentError, "bad continue token"),
        (status(401, "Unauthorized"), PermanentError, "401"),
        (status(403, 'jobs "x" is forbidden'), ForbiddenError, "forbidden"),
        (status(405, "no such verb"), PermanentError, "405"),
        (status(408, "slow"), TryLaterError, "408"),
        (status(409, "modified"), ConflictError, "modified"),
        (status(422, "invalid"), PermanentError, "invalid"),
        (status(429, "too many"), TryLaterError, "too many"),
        (status(500, "etcd"), TryLaterError, "etcd"),
        (status(503), TryLaterError, "HTTP 503"),
        (status(504, "timeout"), TryLaterError, "504"),
        (
            {"status": 502, "text": "<html>Bad Gateway</html>", "content_type": "text/html"},
            TryLaterError,
            "Bad Gateway",
        ),
        ({"status": 403, "text": "<html>Login</html>", "content_type": "text/html"}, ForbiddenError, "Login"),
        ({"status": 500, "text": ""}, TryLaterError, "HTTP 500"),
        ({"status": 500, "json": {"message": {"a": 1}}}, TryLaterError, "HTTP 500"),
        ({"status": 500, "json": ["message"]}, TryLaterError, "HTTP 500"),
        ({"status": 404, "json": {"details": {"name": "build-42", "kind": "jobs"}}}, None, ""),
        ({"status": 404, "json": {"details": {}}}, AbsentKindError, "does not serve"),
        ({"status": 404, "text": "404 page not found"}, AbsentKindError, "does not serve"),
    ],
    ids=lambda value: str(value["status"]) if isinstance(value, dict) else "",
)
async def test_refusal_maps_to_its_error(cluster, script, answer, error, words):
    script.answers = [answer]
    if error is None:
        assert await cluster.get(JOB, REF) is None
        return
    with pytest.raises(error) as raised:
        await cluster.get(JOB, REF)

    assert type(raised.value) is error
    assert words in str(raised.value)
    assert "secret" not in str(raised.value)
    asked_of = ["/apis/batch/v1/namespaces/ci/jobs/build-42", "/apis/batch"]
    expected = asked_of if error is AbsentKindError else asked_of[:1]
    assert [path for _, path in script.asked] == expected, "nothing is retried here; what is gone may be elsewhere"


REQUESTS = {
    "GET": lambda cluster: cluster.get(JOB, REF),
    "LIST": lambda cluster: cluster.list_page(JOB),
    "DELETE": lambda cluster: cluster.delete(JOB, OBJ),
    "PATCH": lambda cluster: cluster.patch(JOB, REF, {"metadata": {}}),
    "POST": lambda cluster: cluster.request("POST", "/api/v1/namespaces/ci/events", body={}),
    "WATCH": lambda cluster: anext(cluster.watch(JOB, "7")),
    "probe": lambda cluster: cluster.probe("/api/v1/namespaces/ci/pods/timers:8080/proxy/"),
}


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("name", list(REQUESTS))
async def test_redirect_of_the_api_server_is_never_followed(cluster, script, name, code):
    async with elsewhere() as (url, arrived):
        script.answers = [{"status": code, "headers": {"date": DATE, "location": f"{url}/login?token=hidden"}}]
        with pytest.raises(RedirectError) as raised:
            await REQUESTS[name](cluster)

    assert arrived == []
    assert len(script.asked) == 1
    assert f"{script.url} answered {code}, a redirect to {url};" in str(raised.value)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("/login", "{self}"),
        ("//login.example/x", "http://login.example"),
        ("https://user:pass@login.example:8443/", "https://login.example:8443"),
        ("https://[::1]:8443/", "https://[::1]:8443"),
        ("http://[bad", "'http://[bad'"),
        ("http://host:port/", "'http://host:port/'"),
        (None, "nowhere"),
    ],
)
async def test_redirect_error_names_only_the_host(cluster, script, location, named):
    headers = {"date": DATE} | ({"location": location} if location else {})
    script.answers = [{"status": 302, "headers": headers}]

    with pytest.raises(RedirectError) as raised:
        await cluster.get(JOB, REF)
    assert f"a redirect to {named.format(self=script.url)};" in str(raised.value)
    assert "pass" not in str(raised.value)


@pytest.mark.filterwarnings("ignore:datetime.datetime.utc:DeprecationWarning")  # the client's own
async def test_oidc_refresh_token_is_not_sent_to_a_redirect_target(script, tmp_path):
    claims = base64.b64encode(b'{"exp": 1}').decode().rstrip("=")
    path = tmp_path / "kubeconfig"
    async with elsewhere() as (url, arrived):
        script.answers = [
            {"json": {"token_endpoint": f"{script.url}/token"}},
            {"status": 307, "headers": {"location": url}},
        ]
        provider = {
            "client-id": "ttl",
            "client-secret": "hidden",
            "id-token": f"x.{claims}.x",
            "idp-issuer-url": script.url,
            "refresh-token": "hidden",
        }
        user = json.dumps({"auth-provider": {"name": "oidc", "config": provider}})
        path.write_text(kubeconfig(script.url, user=user))
        with pytest.raises(RedirectError, match=f"a redirect to {url};"):
            await connect(kubeconfig=str(path))

    assert [path for _, path in script.asked] == ["/.well-known/openid-configuration", "/token"]
    assert arrived == []


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0", 0.0), ("-5", 0.0), ("1e9", 3_600.0), ("inf", 3_600.0), ("nan", 0.0), ("soon", 1.0), (None, 1.0)],
)
async def test_retry_after_is_bounded(cluster, script, header, seconds):
    headers = {"date": DATE} | ({"retry-after": header} if header else {})
    script.answers = [{**status(429, "too many"), "headers": headers}]

    with pytest.raises(TryLaterError) as error:
        await cluster.get(JOB, REF)

    assert error.value.retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("code", "header", "message", "is_overload"),
    [
        (429, "1", "Too many requests, please try again later.", True),
        (429, None, "too many", False),
        (429, "1", 'admission webhook "slow.example.com" denied the request: later', False),
        (503, "1", "the server is starting", False),
    ],
    ids=["priority-and-fairness", "no-retry-after", "webhook", "503"],
)
async def test_overload_is_a_429_of_the_api_server_itself(cluster, script, code, header, message, is_overload):
    headers = {"date": DATE} | ({"retry-after": header} if header else {})
    script.answers = [{**status(code, message), "headers": headers}]

    with pytest.raises(TryLaterError) as error:
        await cluster.get(JOB, REF)

    assert error.value.is_overload is is_overload


@pytest.mark.parametrize("body", ["<html>Login</html>", "", "[]", "null", '"text"'], ids=lambda text: text[:6])
async def test_success_without_an_object_raises_try_later(cluster, script, body):
    script.answers = [{"text": body}]

    with pytest.raises(TryLaterError, match="expected JSON from the API server"):
        await cluster.get(JOB, REF)
    with pytest.raises(TryLaterError, match="expected JSON from the API server"):
        await cluster.list_page(JOB)


DEEP = '{"a":' * 12_000 + "1" + "}" * 12_000


def with_deep(name: str, **meta: Any) -> str:
    """A Job with 12,000 levels in its managedFields, which stand before its name as in custom resources."""
    reported = json.dumps({"name": name, "namespace": "ci", "uid": f"uid-{name}", **meta})
    return '{"metadata":{"managedFields":[{"fieldsV1":' + DEEP + "}]," + reported[1:] + ',"status":{}}'


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_deeply_nested_object_hides_no_other(cluster, script, metadata_only):
    """A user who may create such an object must not stop the sweep of its kind."""
    others = [having(OBJ, "metadata.name", name) for name in ("first", "last")]
    first, last = map(json.dumps, others)
    head = '{"metadata":{"resourceVersion":"7","continue":"next"}'
    script.answers = [{"text": f'{head},"items":[{first},{with_deep("deep")},{last}]}}'}]

    found = await cluster.list_page(JOB, metadata_only=metadata_only)

    assert found.items == others
    assert (found.continue_token, found.resource_version) == ("next", "7")
    (left_out,) = found.unreadable
    assert left_out.ref == ObjectRef("batch/v1", "Job", "ci", "deep", "uid-deep")
    assert "at most 150 levels" in left_out.problem
    assert len(script.asked) == 1


async def test_too_large_page_is_requested_in_smaller_ones(cluster, script, monkeypatch):
    """A user who may create large objects must not make a page that no process can hold."""
    monkeypatch.setattr(adapter, "PAGE_BYTES_MAX", 5_000)
    large = {"json": {**EMPTY, "items": [job(annotations={"notes": "x" * 5_000})]}}
    page = {"json": {"metadata": {"resourceVersion": "7", "continue": "next"}, "items": [OBJ]}}
    script.answers = [large, large, page, page, page]

    assert (await cluster.list_page(JOB, continue_token="here")).items == [OBJ]
    assert (await cluster.list_page(JOB, continue_token="next")).items == [OBJ]
    await cluster.list_page(POD)

    asked = ["500&continue=here", "125&continue=here", "31&continue=here", "62&continue=next", "500"]
    assert [path.partition("limit=")[2] for _, path in script.asked] == asked


@pytest.mark.parametrize("size", [70_000, 1_500], ids=["breaks-off", "whole"])
async def test_too_large_object_is_left_out_and_named(cluster, script, monkeypatch, size):
    """If the object has too many bytes or values, the error names it once it is alone on its page."""
    monkeypatch.setattr(adapter, "PAGE_BYTES_MAX", 50_000)
    monkeypatch.setattr(bodies, "ANSWER_BYTES_MAX", 50_000)
    monkeypatch.setattr(jsontext, "JSON_VALUES_MAX", 1_000)
    large = having(OBJ, "spec", [{}] * size)
    script.answers = [{"json": {"metadata": {"resourceVersion": "7", "continue": "next"}, "items": [large]}}] * 5

    page = await cluster.list_page(JOB)

    assert script.asked[-1][1].endswith("limit=1")
    assert (page.items, page.continue_token) == ([], "next")
    assert [one.ref for one in page.unreadable] == [REF]
    assert "at most" in page.unreadable[0].problem


@pytest.mark.parametrize(
    ("limit", "value", "is_large"),
    [("LARGE_BYTES", 2_000, True), ("LARGE_VALUES", 100, True), ("LARGE_VALUES", 5_000, False)],
)
async def test_page_with_many_bytes_or_values_is_large(cluster, script, monkeypatch, limit, value, is_large):
    monkeypatch.setattr(bodies, limit, value)
    script.answers = [{"json": {**EMPTY, "items": [having(OBJ, "spec", [{}] * 1_000)]}}]

    assert (await cluster.list_page(JOB)).is_large == is_large


async def test_page_without_readable_continue_token_is_an_error(cluster, script, monkeypatch):
    """Without the token, the objects after it would be skipped silently."""
    monkeypatch.setattr(adapter, "PAGE_BYTES_MAX", 2_000)
    monkeypatch.setattr(bodies, "ANSWER_BYTES_MAX", 2_000)
    script.answers = [{"json": {"items": [having(OBJ, "spec", [{}] * 2_000)], "metadata": {"continue": "next"}}}] * 5

    with pytest.raises(TooLargeError):
        await cluster.list_page(JOB)


async def test_object_with_too_many_values_is_unreadable(cluster, script, monkeypatch):
    monkeypatch.setattr(jsontext, "JSON_VALUES_MAX", 1_000)
    script.answers = [{"json": having(OBJ, "spec", [{}] * 1_000)}]

    with pytest.raises(UnreadableError, match="at most 1000 values"):
        await cluster.get(JOB, REF)


async def test_watch_returns_objects_of_maximum_size(cluster, script):
    """JSON writes six characters for each `<`; more than the client reads as one line by itself."""
    change = {"type": "ADDED", "object": job(annotations={"notes": "\\u003c" * 1_500_000})}
    script.answers = [{"json": change}]

    assert [one.type async for one in cluster.watch(JOB, "7")] == ["ADDED"]


async def test_watch_with_an_endless_line_breaks_off(cluster, script, monkeypatch):
    monkeypatch.setattr(apiserver, "LINE_BYTES_MAX", 2**23)
    script.answers = [{"text": "x" * (2**23 + 1)}]

    with pytest.raises(TryLaterError, match="broke off"):
        await anext(cluster.watch(JOB, "7"))


async def test_deeply_nested_object_is_unreadable(cluster, script):
    script.answers = [{"text": '{"a":' * 100_000}]

    with pytest.raises(PermanentError, match="nested too deeply"):
        await cluster.get(JOB, REF)


async def test_unreachable_server_raises_try_later(tmp_path):
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        cluster = await connected_to(f"http://127.0.0.1:{port}", tmp_path)
        with pytest.raises(TryLaterError, match=f"cannot reach the API server at http://127.0.0.1:{port}"):
            await cluster.check()
        await cluster.close()


async def test_late_answer_raises_try_later(cluster, script, monkeypatch):
    monkeypatch.setattr(apiserver, "REQUEST_SECONDS_MAX", 0.1)
    never = asyncio.Event()
    script.answers = [never]

    with pytest.raises(TryLaterError, match="cannot reach the API server"):
        await cluster.get(JOB, REF)
    never.set()


REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/version", "it sent nothing for 0.05 s"),
        ("POST", REVIEW, "it sent nothing for 0.05 s"),
        ("PATCH", "/api/v1/namespaces/a", "no complete answer within 0.2 s"),
    ],
)
async def test_read_of_a_command_waits_less_than_a_write(cluster, script, monkeypatch, method, path, words):
    """A write may wait for admission webhooks, and one that was cut off may have happened."""
    monkeypatch.setattr(apiserver, "REQUEST_SECONDS_MAX", 0.2)
    monkeypatch.setattr(apiserver, "LATE_SECONDS", 0.01)
    reports = []
    cluster.patience = apiserver.Patience(0.05, lambda: reports.append(method))
    never = asyncio.Event()
    script.answers = [never]

    with pytest.raises(TryLaterError, match=words):
        await cluster.request(method, path, body={} if method != "GET" else None)
    never.set()
    assert reports == [method]


async def test_answer_that_never_ends_exceeds_only_the_limit_of_the_whole(cluster, script, monkeypatch):
    """The API server always sends the next byte in time, so the error does not name the limit of a silence."""
    monkeypatch.setattr(apiserver, "REQUEST_SECONDS_MAX", 0.2)
    cluster.patience = apiserver.Patience(60)
    script.answers = ["trickle"]

    with pytest.raises(TryLaterError, match=r"no complete answer within 0\.2 s"):
        await cluster.get(JOB, REF)


async def test_request_that_is_answered_in_time_is_not_reported(cluster, script):
    script.answers = [{"json": OBJ}]
    cluster.patience = apiserver.Patience(5, pytest.fail)
    await cluster.get(JOB, REF)


async def test_get_with_a_dropped_connection_is_repeated_once(cluster, script):
    script.answers = ["drop", {"json": OBJ}]

    assert (await cluster.get(JOB, REF)).obj == OBJ

    assert len(script.asked) == 2


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "later than a DELETE may leave"])
async def test_delete_with_a_dropped_connection_is_not_repeated(cluster, script, deadline, is_late):
    """The second DELETE would be sent long after its decision, and after a stop."""
    script.answers = ["drop", {"json": OBJ}]
    if is_late:
        script.before = deadline.pass_by

    with pytest.raises(TryLaterError, match="not repeated"):
        await cluster.delete(JOB, OBJ)
    assert len(script.asked) == 1

    script.before = lambda: None
    assert await cluster.delete(JOB, OBJ)


async def test_delete_after_its_send_deadline_is_not_repeated_at_another_path(cluster, script, deadline):
    """After a 404 on its path, discovery may be slow; the second DELETE has the same deadline as the first."""
    kinds = {"resources": [{"name": "works", "kind": "Job", "namespaced": True, "verbs": ["get", "delete"]}]}
    group = {"name": "batch", "versions": [{"groupVersion": "batch/v1", "version": "v1"}]}
    gone = {"status": 404, "text": "404 page not found"}
    script.answers = [gone, {"json": group}, {"json": kinds}, {"json": OBJ}]
    script.before = lambda: deadline.pass_by(0.5)

    with pytest.raises(TryLaterError, match="could not be sent"):
        await cluster.delete(JOB, OBJ)

    assert [path for method, path in script.asked if method == "DELETE"] == [
        "/apis/batch/v1/namespaces/ci/jobs/build-42"
    ]
    script.before = lambda: None
    assert await cluster.delete(JOB, OBJ)
    assert script.asked[-1] == ("DELETE", "/apis/batch/v1/namespaces/ci/works/build-42")


async def test_accepted_delete_with_an_unreadable_answer_counts(cluster, script):
    """An object at a limit has a few more values once it is marked for deletion."""
    script.answers = [{"text": '{"a":' * 200 + "1" + "}" * 200}]
    assert await cluster.delete(JOB, OBJ)


async def test_accepted_delete_with_a_too_large_answer_counts(cluster, script, monkeypatch):
    monkeypatch.setattr(bodies, "ANSWER_BYTES_MAX", 1_000)
    script.answers = [{"json": having(OBJ, "spec", [{}] * 1_000)}]
    assert await cluster.delete(JOB, OBJ)


@pytest.mark.parametrize("body", ["<html>Login</html>", "", "[]", "null", '"text"', " [{}]"], ids=lambda text: text[:6])
async def test_delete_answered_without_an_object_raises_try_later(cluster, script, body):
    """A proxy answered: the object may still be there."""
    script.answers = [{"text": body}]
    with pytest.raises(TryLaterError, match="expected JSON from the API server"):
        await cluster.delete(JOB, OBJ)


async def test_delete_whose_answer_breaks_off_raises_try_later(cluster, script):
    script.answers = ["cut"]
    with pytest.raises(TryLaterError, match="cannot reach the API server"):
        await cluster.delete(JOB, OBJ)


async def test_connection_of_a_delete_is_used_again(cluster, script):
    for _ in range(3):
        assert await cluster.delete(JOB, OBJ)
    assert len(script.clients) == 1


async def test_delete_without_a_free_connection_is_not_sent(cluster, script, monkeypatch):
    """The DELETE may have been decided before a stop, and would be sent long after it."""
    answered = asyncio.Event()
    script.answers = [answered]
    reads = [asyncio.create_task(cluster.get(JOB, REF)) for _ in range(API_CONNECTIONS_MAX)]
    await script.until_asked(API_CONNECTIONS_MAX)

    with monkeypatch.context() as short:
        short.setattr(adapter, "LEAVE_SECONDS_MAX", 0.3)
        with pytest.raises(TryLaterError):
            await cluster.delete(JOB, OBJ)

    answered.set()
    await asyncio.gather(*reads)
    assert {method for method, _ in script.asked} == {"GET"}
    assert await cluster.delete(JOB, OBJ)


async def test_delete_with_a_late_token_is_not_sent(cluster, script, deadline):
    class Late:
        async def token(self, *, refused=""):
            deadline.pass_by()
            return "token"

        def close(self):
            pass

    cluster._identity = Late()
    with pytest.raises(TryLaterError, match="could not be sent"):
        await cluster.delete(JOB, OBJ)
    assert script.asked == []


# Reads


async def test_read_has_the_time_of_the_date_header(cluster, script):
    snapshot = await cluster.get(JOB, REF)

    assert snapshot.read_at == NOW
    assert (snapshot.obj["apiVersion"], snapshot.obj["kind"]) == ("batch/v1", "Job")
    assert script.asked == [("GET", "/apis/batch/v1/namespaces/ci/jobs/build-42")]
    assert script.headers[0]["authorization"] == "Bearer secret"


async def test_read_without_a_valid_date_header_is_refused(cluster, script):
    script.answers = [{"json": OBJ, "headers": {"date": "soon"}}]

    with pytest.raises(PermanentError, match="Date header"):
        await cluster.get(JOB, REF)


async def test_page_has_items_token_and_version(cluster, script):
    item = {name: value for name, value in OBJ.items() if name not in ("apiVersion", "kind")}
    script.answers = [{"json": {"metadata": {"resourceVersion": "7", "continue": "next"}, "items": [item]}}]

    page = await cluster.list_page(JOB, namespace="ci")

    assert page.items == [OBJ]
    assert (page.continue_token, page.resource_version, page.read_at) == ("next", "7", NOW)
    assert script.asked == [("GET", "/apis/batch/v1/namespaces/ci/jobs?limit=500")]


@pytest.mark.parametrize("body", [{"items": None, "metadata": {}}, {}, {"metadata": None}])
async def test_page_without_items_is_empty(cluster, script, body):
    script.answers = [{"json": body}]

    assert (await cluster.list_page(JOB)).items == []


@pytest.mark.parametrize("items", [[None, "x", OBJ, 5], [[], OBJ]], ids=["words", "list"])
async def test_invalid_list_item_hides_no_other(cluster, script, items):
    script.answers = [{"json": {**EMPTY, "items": items}}]
    assert [ref_of(item) for item in (await cluster.list_page(JOB)).items] == [REF]


async def test_metadata_page_requests_metadata_only(cluster, script):
    script.answers = [{"json": EMPTY}]

    await cluster.list_page(POD, metadata_only=True, resource_version="7")

    assert "as=PartialObjectMetadataList" in script.headers[0]["accept"]
    assert script.asked[0][1] == "/api/v1/pods?limit=500&resourceVersion=7&resourceVersionMatch=Exact"


async def test_expired_continue_token_continues_with_the_servers_token(cluster, script):
    gone = status(410, "expired", **{"continue": "fresh token=&"})
    script.answers = [gone, {"json": EMPTY}]

    await cluster.list_page(JOB, namespace="ci", continue_token="old", metadata_only=True)

    assert [path.rpartition("continue=")[2] for _, path in script.asked] == ["old", "fresh+token%3D%26"]
    assert all("/namespaces/ci/" in path for _, path in script.asked)


@pytest.mark.parametrize("token", ["", "old"])
async def test_expired_continue_token_without_a_new_one_raises_gone(cluster, script, token):
    script.answers = [status(410, "expired", **{"continue": token})]

    with pytest.raises(GoneError, match="expired"):
        await cluster.list_page(JOB, continue_token="old")
    assert len(script.asked) == 1


async def test_absent_kind_raises_absent_kind(cluster, script):
    script.answers = [{"status": 404, "text": "404 page not found"}]

    with pytest.raises(AbsentKindError, match="does not serve /apis/batch/v1/jobs"):
        await cluster.list_page(JOB)


# Writes


async def test_delete_has_its_preconditions_in_the_body(cluster, script):
    assert await cluster.delete(JOB, OBJ) is True

    assert script.asked == [("DELETE", "/apis/batch/v1/namespaces/ci/jobs/build-42")]
    assert json.loads(script.bodies[0]) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": OBJ["metadata"]["uid"], "resourceVersion": "1042"},
        "propagationPolicy": "Background",
    }


async def test_delete_of_an_absent_object_returns_false(cluster, script):
    script.answers = [{"status": 404, "json": {"details": {"name": "build-42"}}}]

    assert await cluster.delete(JOB, OBJ) is False


@pytest.mark.parametrize("missing", ["uid", "resourceVersion"])
async def test_delete_without_both_preconditions_is_refused(cluster, script, missing):
    obj = {**OBJ, "metadata": {name: value for name, value in OBJ["metadata"].items() if name != missing}}

    with pytest.raises(PermanentError, match=r"metadata\.uid and metadata\.resourceVersion"):
        await cluster.delete(JOB, obj)
    assert script.asked == []


async def test_deleted_object_is_dropped_from_memory(cluster, script):
    cluster.memory.remember(REF.uid, json.dumps(OBJ).encode())
    await cluster.get(JOB, REF)
    assert (await cluster.get_cached(REF, due_at=NOW)).obj == OBJ

    await cluster.delete(JOB, OBJ)

    assert await cluster.get_cached(REF, due_at=NOW) is None


async def test_get_cached_reads_the_server_clock_once(cluster, script):
    cluster.memory.remember(REF.uid, json.dumps(OBJ).encode())

    found = await asyncio.gather(*(cluster.get_cached(REF, due_at=NOW) for _ in range(5)))

    assert [one.obj for one in found] == [OBJ] * 5
    assert script.asked == [("GET", "/version")]


async def test_get_cached_without_a_server_clock_returns_none(cluster, script):
    cluster.memory.remember(REF.uid, json.dumps(OBJ).encode())
    script.answers = [{"status": 503, "json": {}, "headers": {"date": "none"}}]

    assert [await cluster.get_cached(REF, due_at=NOW) for _ in range(3)] == [None] * 3
    assert script.asked == [("GET", "/version")]


async def test_get_cached_of_an_object_that_is_not_cached_reads_nothing(cluster, script):
    assert await cluster.get_cached(REF, due_at=NOW) is None
    assert script.asked == []


async def test_same_event_is_written_once(cluster, script):
    script.answers = [{"json": {"gitVersion": "v1"}}, status(409, "already exists")]

    for _ in range(2):
        await cluster.record_event(REF, "InvalidTtl", "kept: x" * 1_000)

    (first,) = (json.loads(body) for body in script.bodies if body)
    assert first["lastTimestamp"] == format_instant(NOW)
    assert first["type"] == "Warning"
    assert first["involvedObject"]["uid"] == REF.uid
    assert len(first["message"]) <= 1_024
    # The client needs the time of the server before it writes a first Event.
    assert script.asked == [("GET", "/version"), ("POST", "/api/v1/namespaces/ci/events")]


async def test_event_may_have_level_normal(cluster, script):
    script.answers = [{"json": {"gitVersion": "v1"}}, status(409, "already exists")]

    await cluster.record_event(REF, "Swept", "all of it", level="Normal")

    assert json.loads(script.bodies[-1])["type"] == "Normal"


async def test_event_about_two_installations_is_written_for_each(cluster, script):
    """They have no uid: the stop of two namespaces at once gives one message about each."""
    script.answers = [{"json": {"gitVersion": "v1"}}, {"status": 201, "json": {}}, {"status": 201, "json": {}}]

    for name in ("one", "two"):
        about = ObjectRef("v1", "Namespace", name, name, "")
        await cluster.record_event(about, "Stopped", "deletions are stopped")

    written = [json.loads(body)["involvedObject"]["name"] for body in script.bodies if body]
    assert written == ["one", "two"]


HOSTILE = ["a/b", "a?dryRun=All", "a#b", "a%2Fb", "../../nodes/n", "a b", "ü", "a\nb", "a;b", "%", "a\\b"]


@pytest.mark.parametrize("name", HOSTILE)
async def test_object_name_is_quoted_in_its_path(cluster, script, name):
    await cluster.get(JOB, ObjectRef("batch/v1", "Job", name, name, "u"))

    ((_, path),) = script.asked
    segments = path.split("/")
    assert [*segments[:5], segments[6]] == ["", "apis", "batch", "v1", "namespaces", "jobs"]
    assert len(segments) == 8
    assert not {"?", "#", "\\", " "} & set(path)


@pytest.mark.parametrize("name", [".", ".."])
async def test_object_named_like_a_path_step_is_refused(cluster, script, name):
    for ref in (ObjectRef("batch/v1", "Job", "ci", name, "u"), ObjectRef("batch/v1", "Job", name, "x", "u")):
        with pytest.raises(PermanentError, match="expected a namespace and a name"):
            await cluster.get(JOB, ref)
    assert script.asked == []


# The connection


def credentials(*arguments):
    command = ", ".join(json.dumps(each) for each in arguments)
    return f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, {command}]}}}}"


NOT_A_CERTIFICATE = "bm90IGEgY2VydGlmaWNhdGU="


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "the file does not exist"),
        ("a: [b", "invalid YAML at line 2: did not find expected"),
        (b"a: \xff", "utf-8"),
        ("", "contexts"),
        ("- a", "contexts"),
        ("just text", "contexts, clusters and users, got a text"),  # which may be a token
        ("contexts: []\nclusters: []\nusers: []\n", "got no context"),
        (kubeconfig().replace("current-context: test", ""), "select a context with --context: test"),
        (
            kubeconfig().replace("current-context: test", "current-context: other"),
            "context 'other' does not exist; expected one of: test",
        ),
        (kubeconfig(context="{cluster: elsewhere, user: me}"), "elsewhere"),
        (kubeconfig(context="{cluster: here, user: absent}"), "users"),
        (kubeconfig(cluster="{insecure-skip-tls-verify: true}"), "server"),
        (
            kubeconfig(cluster=f"{{server: 'https://x', certificate-authority-data: {NOT_A_CERTIFICATE}}}"),
            "certificate",
        ),
        (kubeconfig(cluster="{server: 'https://x', certificate-authority: /none/ca.pem}"), "/none/ca.pem"),
        (kubeconfig(user=f"{{client-certificate-data: {NOT_A_CERTIFICATE}, client-key-data: eA==}}"), "PEM"),
        (kubeconfig(user="{tokenFile: /none/token}"), "/none/token"),
        (kubeconfig(user=credentials("echo no login >&2; exit 3")), "credential plugin"),
        (kubeconfig(user=credentials("echo gibberish")), "credential plugin"),
        (
            kubeconfig(user="{exec: {apiVersion: client.authentication.k8s.io/v1, command: /none/x}}"),
            "cannot be started: '/none/x' is not an executable file",
        ),
        (
            kubeconfig(
                user="{exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-one, installHint: Get it}}"
            ),
            "cannot be started: 'no-such-one' is not on the PATH; Get it",
        ),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) and "\n" not in value else "",
)
async def test_unusable_kubeconfig_is_one_sentence_that_names_it(document, words, tmp_path):
    path = tmp_path / "kubeconfig"
    if document is not None:
        path.write_bytes(document if isinstance(document, bytes) else document.encode())

    with pytest.raises(PermanentError) as error:
        await connect(kubeconfig=str(path))

    assert str(error.value).startswith(f"kubeconfig {path}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


async def test_credential_plugin_token_is_used(script, tmp_path):
    given = {"token": "from-plugin"}
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": given}
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(script.url, user=credentials(f"echo '{json.dumps(answer)}'")))

    cluster = await connect(kubeconfig=str(path))
    await cluster.check()
    await cluster.close()

    assert script.headers[0]["authorization"] == "Bearer from-plugin"


async def test_context_can_be_selected(script, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(script.url).replace("current-context: test", "current-context: other"))

    cluster = await connect(kubeconfig=str(path), context="test")

    assert cluster.server == script.url
    await cluster.close()


# Watches


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ({"text": "<html>a proxy's page</html>"}, TryLaterError, "watch of jobs broke"),
        ({"body": b"\xff\n"}, TryLaterError, "watch of jobs broke"),
        ({"text": "[]"}, TryLaterError, "expected a change of an object"),
        ({"text": '{"type": "ADDED", "object": "x"}'}, TryLaterError, "expected a change of an object"),
        ({"text": '{"type": "ADDED"}'}, TryLaterError, "expected a change of an object"),
        ({"json": {"type": "ERROR", "object": {"code": 410, "message": "too old"}}}, GoneError, "too old"),
        ({"json": {"type": "ERROR", "object": {"code": 500, "message": "etcd"}}}, TryLaterError, "etcd"),
        (status(410, "too old"), GoneError, "too old"),
        (status(403, "jobs is forbidden"), ForbiddenError, "forbidden"),
        (status(503, "busy"), TryLaterError, "busy"),
        ("drop", TryLaterError, "broke off"),
    ],
)
async def test_broken_watch_raises_its_error(answer, error, words, script, cluster):
    script.answers = [answer]
    with pytest.raises(error, match=words):
        [change async for change in cluster.watch(JOB, "7")]


async def test_changes_before_a_watch_broke_are_returned(script, cluster):
    changes = [{"type": "ADDED", "object": OBJ}, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}]
    script.answers = [{"text": "\n".join([*map(json.dumps, changes), "rubbish"])}]
    watch = cluster.watch(JOB, "7")
    assert [(await anext(watch)).type for _ in changes] == ["ADDED", "BOOKMARK"]
    with pytest.raises(TryLaterError):
        await anext(watch)


async def test_watch_names_a_deeply_nested_object_and_continues(script, cluster):
    deep = '{"type":"MODIFIED","object":' + with_deep("deep", resourceVersion="9") + "}"
    script.answers = [{"text": "\n".join([deep, json.dumps({"type": "ADDED", "object": OBJ})])}]

    first, second = [change async for change in cluster.watch(JOB, "7")]

    assert (first.type, second.type) == ("UNREADABLE", "ADDED")
    assert ref_of(first.obj) == ObjectRef("batch/v1", "Job", "ci", "deep", "uid-deep")
    assert first.obj["metadata"]["resourceVersion"] == "9"
    assert "at most 150 levels" in first.problem


async def test_incomplete_line_with_a_deeply_nested_object_is_not_an_error(script, cluster):
    script.answers = [{"text": '{"type": "ADDED", "object": ' + "[" * 100_000}]
    assert [change.type async for change in cluster.watch(JOB, "7")] == ["UNREADABLE"]


OF_GUARD = "ValidatingAdmissionPolicy 'ttl-after-finished-delete-guard-job' with binding 'b'"


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (403, f"{OF_GUARD} denied request: held: the Job has the annotation", "held: the Job has the annotation"),
        (422, f"{OF_GUARD}: expression 'x' resulted in error: why", "expression 'x' resulted in error: why"),
    ],
)
async def test_delete_guard_refusal_raises_guard_error(code, said, expected, cluster, script):
    script.answers = [status(code, f'jobs.batch "build-42" is forbidden: {said}')]
    with pytest.raises(GuardError) as refused:
        await cluster.delete(JOB, OBJ)
    assert str(refused.value) == (
        f"the delete guard refuses, by ValidatingAdmissionPolicy ttl-after-finished-delete-guard-job: {expected}"
    )


async def test_refusal_by_another_policy_raises_forbidden(cluster, script):
    script.answers = [status(403, "forbidden: ValidatingAdmissionPolicy 'theirs' with binding 'b' denied request: no")]
    with pytest.raises(ForbiddenError, match="'theirs'"):
        await cluster.delete(JOB, OBJ)
