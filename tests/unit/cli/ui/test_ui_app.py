"""The server of the page: read-only; without tokens only for this machine, and with tokens by the rights of a user."""

import asyncio
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from shared.adapters.kubernetes.requests import Answer
from shared.adapters.kubernetes.reviews import REVIEW_CACHED_SECONDS, Reviews
from shared.cli.ui.app import UiServer, make_app
from shared.cli.ui.cluster_view import CachedView, UnreadPart
from shared.cli.ui.shown import PLACES_CHECKED_MAX
from shared.errors import ForbiddenError, TryLaterError
from tests.builders import NOW
from tests.ui_views import view_of
from tests.virtual_time import anyio_backend  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio

USERS = {"ann": ["ci", "web", ""], "bob": ["web"], "eve": []}
"""The namespaces in which each user may list Jobs, by token, which is the user's name here."""


class ReviewingServer:
    """An API server that knows some tokens; `paths` has its requests."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.paths = error, list[str]()

    async def request(self, _method: str, path: str, *, body: Any) -> Any:
        self.paths.append(path)
        if self.error:
            raise self.error
        spec = body["spec"]
        if "token" in spec:
            known = spec["token"] in USERS
            user = {"username": spec["token"], "groups": ["system:authenticated"], "extra": {"a": ["b"]}}
            return Answer({"status": {"authenticated": known, "user": user}}, NOW)
        asked = spec["resourceAttributes"]
        may = asked["resource"] == "jobs" and asked["namespace"] in USERS[spec["user"]]
        return Answer({"status": {"allowed": may}}, NOW)


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def found(self) -> Any:
        return json.loads(self.body)


@dataclass
class Site:
    """The application, without a socket.

    Attributes:
        app: The application.
        reads: One entry for each read of the cluster.
        left: Set when all clients leave.
    """

    app: Any
    reads: list[int] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def _wait_until_left(self) -> Any:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def get(
        self, path: str, *, method: str = "GET", hosts: tuple[str, ...] = ("localhost:8090",), **headers: str
    ):
        path, _, query = path.partition("?")
        given = [
            *((b"host", one.encode()) for one in hosts),
            *((k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()),
        ]
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": given, "root_path": "", "scheme": "http", "server": ("127.0.0.1", 8090), "client": None,
            "http_version": "1.1",
        }  # fmt: skip
        sent: list[Any] = []
        messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Any:
            return next(messages, None) or await self._wait_until_left()

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Reply(sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent[1:]))


async def site_of(server: ReviewingServer | None = None, error: Exception | None = None, view: Any = None) -> Site:
    view = view or await view_of()
    reads: list[int] = []

    async def read() -> Any:
        reads.append(1)
        await asyncio.sleep(0)
        if error:
            raise error
        return view

    reviews: Any = Reviews(server) if server else None  # type: ignore[arg-type]
    views = CachedView(read, seconds=30)
    return Site(make_app(UiServer(views, 30, reviews), loopback_only=server is None), reads)


async def test_page_and_data_are_served_with_a_strict_policy():
    site = await site_of()
    page, data, probe = [await site.get(path) for path in ("/", "/api/v1/overview", "/healthz")]
    assert [one.status for one in (page, data, probe)] == [200, 200, 200]
    assert data.found["totals"]["objects"] == 8
    for one in (page, data):
        policy = one.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "set-cookie" not in one.headers
        assert one.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/api/v1/overview", "/nowhere"])
async def test_other_methods_are_refused(method, path):
    reply = await (await site_of()).get(path, method=method)
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")
    assert "read-only" in reply.found["error"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8090", "[::1]:8090", "[::1]", "LOCALHOST:1", "127.0.0.5:1"])
async def test_host_that_names_this_machine_is_served(host):
    assert (await (await site_of()).get("/api/v1/overview", hosts=(host,))).status == 200


@pytest.mark.parametrize(
    "hosts",
    [
        ("evil.example",),
        ("localhost.evil.example:8090",),
        ("127.0.0.1.evil.example",),
        ("localhost]:1",),
        (),
        ("localhost", "evil.example"),
        ("10.0.0.1",),
        ("[fe80::1]:8090",),
    ],
)
async def test_host_that_names_another_machine_is_refused(hosts):
    site = await site_of()
    for path in ("/", "/api/v1/overview"):
        assert (await site.get(path, hosts=hosts)).status == 421
    assert not site.reads


@pytest.mark.parametrize("path", ["/api/v1/overview/", "/healthz/", "//evil.example/", "/%2f/evil.example"])
async def test_no_path_leads_to_another_host(path):
    reply = await (await site_of(ReviewingServer())).get(path, hosts=("evil.example",))
    assert (reply.status, reply.headers.get("location")) == (404, None)


@pytest.mark.parametrize("query", ["namespace=Ci/x", "namespace=a&namespace=b", "color=red", f"kind={'x' * 300}"])
async def test_malformed_query_is_refused(query):
    reply = await (await site_of()).get(f"/api/v1/overview?{query}")
    assert reply.status == 400
    assert reply.found["error"]


async def test_unread_cluster_is_an_error_in_json():
    assert (await (await site_of(error=TryLaterError("busy"))).get("/api/v1/overview")).status == 503
    reply = await (await site_of(error=ForbiddenError("no"))).get("/api/v1/overview")
    assert (reply.status, reply.found) == (502, {"error": "no"})
    assert (await (await site_of()).get("/nowhere")).found["error"]


@pytest.mark.parametrize("authorization", ["", "Basic abc", "Bearer ", "Bearer mallory"])
async def test_request_without_a_valid_token_is_refused(authorization):
    site = await site_of(ReviewingServer())
    reply = await site.get("/api/v1/overview", authorization=authorization)
    assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert not site.reads
    assert (await site.get("/", hosts=("ui.example",))).status == 200


async def test_user_sees_only_the_namespaces_in_which_they_may_list():
    site = await site_of(ReviewingServer())
    ann = await site.get("/api/v1/overview", authorization="Bearer ann")
    bob = await site.get("/api/v1/overview", authorization="Bearer bob")
    assert (ann.found["namespaces"], bob.found["namespaces"]) == (["ci", "web"], ["web"])
    assert bob.found["scope"]["restricted"]
    assert bob.found["status"] is None
    assert b"due-0" not in bob.body


async def test_token_behind_the_proxy_of_the_api_server_has_the_same_rights():
    site = await site_of(ReviewingServer())
    direct = await site.get("/api/v1/overview", authorization="Bearer bob")
    proxied = await site.get("/api/v1/overview", x_ttl_authorization="Bearer bob")
    assert (proxied.status, proxied.body) == (200, direct.body)
    assert (await site.get("/api/v1/overview", x_ttl_authorization="Bearer mallory")).status == 401


async def test_request_with_two_tokens_is_refused():
    site = await site_of(ReviewingServer())
    reply = await site.get("/api/v1/overview", authorization="Bearer bob", x_ttl_authorization="Bearer ann")
    assert reply.status == 401
    assert "got 2" in reply.found["error"]
    assert not site.reads


async def test_user_who_may_list_nothing_gets_403():
    reply = await (await site_of(ReviewingServer())).get("/api/v1/overview", authorization="Bearer eve")
    assert reply.status == 403
    assert "may not list" in reply.found["error"]


async def test_refusal_names_the_kinds_that_the_page_itself_may_not_list():
    unread = [
        UnreadPart("workflows.argoproj.io", "ui may not list it"),
        UnreadPart("objects", "2 objects cannot be read, such as Job secret/name", is_public=False),
        UnreadPart("last sweep", "events is forbidden", is_status=True),
    ]
    site = await site_of(ReviewingServer(), view=replace(await view_of(), unread=unread))
    reply = await site.get("/api/v1/overview", authorization="Bearer eve")
    assert reply.status == 403
    assert reply.found["error"].endswith(". This page itself could not read: workflows.argoproj.io")


async def test_user_who_may_list_nothing_gets_403_also_if_not_all_places_are_checked():
    view = await view_of()
    first = view.groups[0]
    places = [replace(first.place, namespace=f"ns-{number}") for number in range(PLACES_CHECKED_MAX)]
    many = replace(view, groups=[*view.groups, *(replace(first, place=one) for one in places)])
    site = await site_of(ReviewingServer(), view=many)
    reply = await site.get("/api/v1/overview", authorization="Bearer eve")
    assert (reply.status, set(reply.found)) == (403, {"error"})
    reply = await site.get("/api/v1/overview?namespace=ns-499", authorization="Bearer eve")
    assert reply.status == 403
    assert (await site.get("/api/v1/overview", authorization="Bearer bob")).status == 403  # web is not checked
    reply = await site.get("/api/v1/overview?namespace=web", authorization="Bearer bob")
    assert (reply.status, reply.found["namespaces"]) == (200, ["web"])


@pytest.mark.parametrize("place", ["ci", "empty", "kube-system"])
async def test_answer_without_a_right_is_the_same_with_and_without_objects(place):
    site = await site_of(ReviewingServer())
    reply = await site.get(f"/api/v1/overview?namespace={place}", authorization="Bearer bob")
    assert reply.status == 403
    reply = await site.get(f"/api/v1/overview?namespace={place}", authorization="Bearer ann")
    assert (reply.status, reply.found["totals"]["objects"]) == (200, 5 if place == "ci" else 0)


async def test_unanswered_review_is_no_grant():
    site = await site_of(ReviewingServer(TryLaterError("busy")))
    assert (await site.get("/api/v1/overview", authorization="Bearer ann")).status == 503
    site = await site_of(ReviewingServer(ForbiddenError("may not create tokenreviews")))
    assert (await site.get("/api/v1/overview", authorization="Bearer ann")).status == 502


async def test_answers_of_the_api_server_are_used_again_for_a_while():
    server, now = ReviewingServer(), [0.0]
    reviews = Reviews(server, monotonic=lambda: now[0])  # type: ignore[arg-type]
    for _ in range(3):
        assert await reviews.find_user("ann")
        assert await reviews.find_user("mallory") is None
    assert len(server.paths) == 2
    now[0] = REVIEW_CACHED_SECONDS + 1
    await reviews.find_user("ann")
    assert len(server.paths) == 3


async def test_cluster_is_read_once_for_many_readers_and_again_when_the_view_is_old():
    view, now, reads = await view_of(), [0.0], list[int]()

    async def read() -> Any:
        reads.append(1)
        await asyncio.sleep(0)
        return view

    views = CachedView(read, seconds=30, monotonic=lambda: now[0])
    await asyncio.gather(*(views.get() for _ in range(20)))
    assert len(reads) == 1
    now[0] = 45
    assert await views.get() is view  # the old one, while a new one is read
    await asyncio.sleep(0.01)
    assert len(reads) == 2
    now[0] = 200
    await views.get()
    assert len(reads) == 3


async def test_failed_read_is_repeated_for_the_next_reader():
    view, errors = await view_of(), [TryLaterError("busy")]

    async def read() -> Any:
        if errors:
            raise errors.pop()
        return view

    views = CachedView(read, seconds=30)
    with pytest.raises(TryLaterError):
        await views.get()
    assert await views.get() is view
