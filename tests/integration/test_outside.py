"""Connect to a real API server from outside the cluster, as a service account, with settings of the environment."""

import asyncio
import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from google.auth.compute_engine import _metadata

from shared.adapters.auth import identity
from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes import connect as connecting
from shared.adapters.kubernetes.access import get_access
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.connect import connect
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.devserver.real_servers import RealServer, real_server
from shared.errors import ForbiddenError, PermanentError, TryLaterError
from shared.messages import ObjectDeleted, Timer, TimersSet
from tests.builders import POD
from tests.functions.test_processes import running
from tests.functions.wire import FIRED, Answer, binary, timer
from tests.integration.conftest import Api
from tests.loopback import answering_with
from tests.servers import shared_server  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio


class Account:
    """A service account with rights in its namespace alone: on Pods, and to read the brake."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self._accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        rules = [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "delete"]},
            {"apiGroups": [""], "resources": ["namespaces", "configmaps"], "verbs": ["get"]},
        ]
        api.call("POST", f"{roles}/roles", {"metadata": {"name": "work"}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "work"}
        subjects = [{"kind": "ServiceAccount", "name": "outside", "namespace": namespace}]
        api.call("POST", f"{roles}/rolebindings", {"metadata": {"name": "work"}, "roleRef": role, "subjects": subjects})
        api.call("POST", self._accounts, {"metadata": {"name": "outside"}})

    def new_token(self) -> str:
        request = {"spec": {"expirationSeconds": 600}}
        return str(self.api.call("POST", f"{self._accounts}/outside/token", request)["status"]["token"])

    def may_create_tokens(self) -> None:
        """Of itself: one more right."""
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}/roles/work"
        rules = self.api.get(path)["rules"]
        rules.append(
            {
                "apiGroups": [""],
                "resources": ["serviceaccounts/token"],
                "resourceNames": ["outside"],
                "verbs": ["create"],
            }
        )
        self.api.call("PATCH", path, {"rules": rules})

    def revoke(self, token: str) -> None:
        """End all tokens there are, by another account of the same name; wait until the API server knows."""
        self.api.call("DELETE", f"{self._accounts}/outside")
        self.api.wait("the end of the account", lambda: self.api.get(f"{self._accounts}/outside") is None)
        self.api.call("POST", self._accounts, {"metadata": {"name": "outside"}})
        self.api.wait("the end of the token", lambda: not self._is_known(token))

    def rotate(self, path: Path) -> None:
        """Have a file with a token hold another, the first being of no use any more."""
        self.revoke(path.read_text())
        path.write_text(self.new_token())

    def _is_known(self, token: str) -> bool:
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(
            f"{self.api.server.url}/api/v1/namespaces/{self.namespace}/pods", headers=headers
        )
        try:
            with urllib.request.urlopen(request, context=self.api.server.ssl, timeout=30):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return error.code != 401


@pytest.fixture
def account(api: Api, namespace: str) -> Account:
    return Account(api, namespace)


Connect = Callable[..., Any]


@pytest.fixture
async def outside(server: RealServer) -> Any:
    """Connects by the environment alone; what was connected is closed with the test."""
    connected: list[KubernetesCluster] = []

    async def by(**environment: str | None) -> KubernetesCluster:
        wanted = {"TTL_API_SERVER": server.url, "TTL_API_CA": str(server.ca), **environment}
        given = {name: value for name, value in wanted.items() if value is not None}
        connected.append(await connect(access=get_access(read_settings(environment=given))))
        return connected[-1]

    yield by
    for each in connected:
        await each.close()


async def look(cluster: KubernetesCluster, namespace: str) -> list[str]:
    """The names of the Pods; raises if the API server rejects the credentials or the request."""
    page = await cluster.list_page(POD, namespace=namespace)
    return [pod["metadata"]["name"] for pod in page.items]


async def test_token_and_ca_are_read_from_the_environment(outside: Connect, account: Account) -> None:
    pem = account.api.server.ca.read_bytes()
    cluster = await outside(TTL_API_TOKEN=account.new_token(), TTL_API_CA=base64.b64encode(pem).decode())

    assert await look(cluster, account.namespace) == []
    with pytest.raises(ForbiddenError, match=f"system:serviceaccount:{account.namespace}:outside"):
        await look(cluster, "kube-system")


async def test_revoked_token_is_reported_without_its_value(outside: Connect, account: Account) -> None:
    token = account.new_token()
    cluster = await outside(TTL_API_TOKEN=token)
    account.revoke(token)

    with pytest.raises(PermanentError, match="rejected the credentials") as error:
        await look(cluster, account.namespace)
    assert token not in str(error.value)


async def test_rotated_token_file_is_read_again_without_a_failed_request(
    outside: Connect, account: Account, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(account.new_token())
    cluster = await outside(TTL_API_TOKEN_FILE=str(path))
    assert await look(cluster, account.namespace) == []

    account.rotate(path)

    assert await asyncio.gather(*(look(cluster, account.namespace) for _ in range(20))) == [[]] * 20


@pytest.mark.parametrize("ca", ["of another server", "of the system"])
async def test_server_with_a_certificate_of_another_ca_is_rejected(
    ca: str, outside: Connect, server: RealServer, tmp_path: Path
) -> None:
    given = None
    if ca == "of another server":
        with real_server(server.assets, fsync=False) as other:
            given = other.ca.read_text()
    cluster = await outside(TTL_API_TOKEN="unseen", TTL_API_CA=given)

    with pytest.raises(PermanentError, match=r"is not trusted: .*TTL_API_CA"):
        await cluster.check()


async def test_ca_without_key_identifiers_is_accepted_and_the_host_name_is_checked(outside: Connect) -> None:
    context = (await outside(TTL_API_TOKEN="unseen"))._transport.tls

    assert not context.verify_flags & 0x20  # X509_V_FLAG_X509_STRICT, on by default since Python 3.13
    assert context.check_hostname


async def test_publisher_outside_the_cluster_is_a_service_account_to_the_broker(
    account: Account, server: RealServer
) -> None:
    """The Broker is played; what it would do with the token, ask the API server whose it is, is real."""
    seen: list[str] = []

    async def take(request: web.Request) -> web.Response:
        seen.append(request.headers["authorization"].removeprefix("Bearer "))
        return web.Response(status=202)

    account.may_create_tokens()
    async with answering_with(take) as sink:
        environment = {
            "TTL_API_SERVER": server.url,
            "TTL_API_CA": str(server.ca),
            "TTL_API_TOKEN": account.new_token(),
            "K_SINK": sink,
            "TTL_SINK_ACCOUNT": f"{account.namespace}/outside",
            "TTL_SINK_AUDIENCE": "the-broker",
        }
        process = build(read_config(read_settings(environment=environment)))
        publisher: Any = process.published()
        cluster: Any = await process.cluster()
        for _ in range(2):
            await publisher.publish(Timer.model_validate(timer()))
        await publisher.close()
        await cluster.close()

    assert seen[0] == seen[1] != environment["TTL_API_TOKEN"]
    review = {"spec": {"token": seen[0], "audiences": ["the-broker"]}}
    status = account.api.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
    assert status["user"]["username"] == f"system:serviceaccount:{account.namespace}:outside"
    assert status["audiences"] == ["the-broker"]


async def test_publisher_without_the_right_to_create_tokens_is_rejected(account: Account, server: RealServer) -> None:
    environment = {
        "TTL_API_SERVER": server.url,
        "TTL_API_CA": str(server.ca),
        "TTL_API_TOKEN": account.new_token(),
        "K_SINK": "http://127.0.0.1:1",
        "TTL_SINK_ACCOUNT": f"{account.namespace}/outside",
        "TTL_SINK_AUDIENCE": "the-broker",
    }
    process = build(read_config(read_settings(environment=environment)))
    publisher: Any = process.published()
    cluster: Any = await process.cluster()
    with pytest.raises(ForbiddenError, match="serviceaccounts/token"):
        await publisher.publish(Timer.model_validate(timer()))
    await publisher.close()
    await cluster.close()


# What counts first


@pytest.fixture
def in_cluster(account: Account, server: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process as a Pod of the cluster: returns the file with its token."""
    account_folder = tmp_path / "account"
    account_folder.mkdir()
    (account_folder / "ca.crt").write_text(server.ca.read_text())
    token = account_folder / "token"
    token.write_text(account.new_token())
    address = urlsplit(server.url)
    monkeypatch.setattr(connecting, "SERVICE_ACCOUNT", account_folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(address.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    return token


async def test_settings_take_precedence_over_the_cluster_of_the_pod(in_cluster: Path, outside: Connect) -> None:
    cluster = await outside(TTL_API_TOKEN="somebody-else")

    with pytest.raises(PermanentError, match="rejected the credentials"):
        await look(cluster, "default")


async def test_cluster_of_the_pod_takes_precedence_over_a_kubeconfig(in_cluster: Path, account: Account) -> None:
    cluster = await connect(access=get_access(read_settings(environment={})))
    try:
        assert await look(cluster, account.namespace) == []
        with pytest.raises(ForbiddenError):
            await look(cluster, "default")  # the kubeconfig is an administrator's

        account.rotate(in_cluster)
        assert await look(cluster, account.namespace) == []
    finally:
        await cluster.close()


# Google


class MetadataServer:
    """Google's metadata server, as far as an identity goes; its tokens are those of a service account of the cluster.

    Attributes:
        lifetime: Seconds that it says its tokens are valid for.
        given: The tokens, as they were fetched.
        scopes: What the last one was asked to be good for.
        uncalled: Requests without the header that proves that no client was tricked into them.
    """

    def __init__(self, new_token: Callable[[], str]) -> None:
        self.new_token, self.lifetime = new_token, 3600
        self.given: list[str] = []
        self.scopes: list[str] = []
        self.uncalled = 0
        self._server = self._listen(0)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    def _listen(self, port: int) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def start(self) -> None:
        self._server = self._listen(int(self.host.partition(":")[2]))

    def _answer(self, path: str, query: dict[str, list[str]]) -> Any:
        if path.endswith("/token"):
            self.given.append(self.new_token())
            self.scopes = query["scopes"][0].split(",")
            return {"access_token": self.given[-1], "expires_in": self.lifetime, "token_type": "Bearer"}
        return {"email": "outside@test.iam.gserviceaccount.com", "aliases": ["default"], "scopes": []}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        metadata = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.headers["Metadata-Flavor"] != "Google":
                    metadata.uncalled += 1
                    self.send_error(403)
                    return
                url = urlsplit(self.path)
                body = json.dumps(metadata._answer(url.path, parse_qs(url.query))).encode()
                self.send_response(200)
                for name, value in (("Metadata-Flavor", "Google"), ("Content-Type", "application/json")):
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture
def metadata(account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataServer]:
    metadata = MetadataServer(account.new_token)
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", metadata.host)  # google-auth read its variable when imported
    monkeypatch.setenv("GCE_METADATA_HOST", metadata.host)
    monkeypatch.setenv("GCE_METADATA_IP", metadata.host)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))  # nobody's own login
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    yield metadata
    metadata.stop()


async def test_google_token_is_fetched_once_for_many_requests(
    outside: Connect, account: Account, metadata: MetadataServer
) -> None:
    cluster = await outside(TTL_API_IDENTITY="google")
    assert metadata.given == []

    for _ in range(3):
        assert await asyncio.gather(*(look(cluster, account.namespace) for _ in range(20))) == [[]] * 20

    assert len(metadata.given) == 1
    assert metadata.scopes[-1].endswith("/userinfo.email")
    assert metadata.uncalled == 0


async def test_google_token_is_replaced_when_it_expires(
    outside: Connect, account: Account, metadata: MetadataServer
) -> None:
    metadata.lifetime = 0
    cluster = await outside(TTL_API_IDENTITY="google")

    for count in (1, 2, 3):
        assert await look(cluster, account.namespace) == []
        assert len(set(metadata.given)) == count


async def test_google_token_is_renewed_before_it_expires(
    outside: Connect, account: Account, metadata: MetadataServer
) -> None:
    metadata.lifetime = int(identity.TOKEN_RENEW_SECONDS) - 1
    cluster = await outside(TTL_API_IDENTITY="google")
    assert await look(cluster, account.namespace) == []
    metadata.stop()

    assert await look(cluster, account.namespace) == []  # the one there is serves on, though no next can be had

    metadata.start()
    await asyncio.wait([cluster._identity._renewal])
    assert len(metadata.given) == 2


async def test_rejected_google_token_is_replaced_without_a_failed_request(
    outside: Connect, account: Account, metadata: MetadataServer
) -> None:
    cluster = await outside(TTL_API_IDENTITY="google")
    assert await look(cluster, account.namespace) == []
    account.revoke(metadata.given[0])

    assert await asyncio.gather(*(look(cluster, account.namespace) for _ in range(20))) == [[]] * 20
    assert len(metadata.given) == 2


async def test_request_without_a_metadata_server_is_retried_later(
    outside: Connect, account: Account, metadata: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata.stop()
    cluster = await outside(TTL_API_IDENTITY="google")
    with pytest.raises(TryLaterError, match="Google"):
        await look(cluster, account.namespace)

    metadata.start()
    assert await look(cluster, account.namespace) == []


def retried(answer: Answer) -> dict[str, Any]:
    """The timer for the next attempt, as `expire` answers with it."""
    (again,) = json.loads(answer.event().data)["timers"]
    return again


async def test_function_loses_no_object_while_the_metadata_server_is_unavailable(
    account: Account, metadata: MetadataServer, server: RealServer, tmp_path: Path
) -> None:
    """`expire` as Cloud Run starts it; the test fires the timers that it answers with, as the engine does."""
    metadata.stop()
    pods = f"/api/v1/namespaces/{account.namespace}/pods"
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/work:1"}]}
    annotations = {"ttlafterfinished.dev/ttl": "0s"}
    created = account.api.call("POST", pods, {"metadata": {"name": "done", "annotations": annotations}, "spec": spec})
    account.api.call("PATCH", f"{pods}/done/status", {"status": {"phase": "Succeeded"}})
    ref = {"apiVersion": "v1", "kind": "Pod", "namespace": account.namespace, "name": "done"}
    at = created["metadata"]["creationTimestamp"]
    fired = {"ref": {**ref, "uid": created["metadata"]["uid"]}, "purpose": "expire", "dueAt": at}
    where = {"TTL_API_SERVER": server.url, "TTL_API_CA": server.ca.read_text(), "TTL_API_IDENTITY": "google"}
    where["TTL_NAMESPACE"] = account.namespace

    async with running("expire", tmp_path, **where) as process:
        assert await process.is_ready(), process.lines()
        away = await process.post(*binary(FIRED, fired))
        assert retried(away)["attempts"] == 1
        assert account.api.get(f"{pods}/done")
        metadata.start()
        while (answer := await process.post(*binary(FIRED, fired))).event().type == TimersSet.type:
            assert retried(answer)

    assert answer.event().type == ObjectDeleted.type, answer.text
    assert account.api.get(f"{pods}/done") is None
    assert not [line for line in process.lines() for token in metadata.given if token in line]
