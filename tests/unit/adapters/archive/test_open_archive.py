"""Open an archive: what is sent to each store, and what is said about a wrong policy or environment."""

import http.server
import threading
from typing import Any
from urllib.parse import unquote

import pytest

from shared.adapters.archive.open_archive import open_archive
from shared.errors import PermanentError, TtlError
from tests.contract.archives import make

pytestmark = pytest.mark.anyio


class Recorder(http.server.BaseHTTPRequestHandler):
    """Notes each request, and refuses it."""

    requests: list[tuple[str, str, dict[str, str]]]

    def answer(self):
        self.requests.append((self.command, self.path, {key.lower(): value for key, value in self.headers.items()}))
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(400)
        self.send_header("content-length", "0")
        self.end_headers()

    do_PUT = do_GET = do_HEAD = do_POST = answer  # noqa: N815 - the names of http.server

    def log_message(self, *args):
        pass


@pytest.fixture
def recorder():
    handler: Any = type("Handler", (Recorder,), {"requests": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler.requests
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "token")


async def put(url, encryption=None):
    key, document = make("a:b")
    with pytest.raises(PermanentError, match="the store answered 400"):
        await open_archive("main", url, encryption).put(key, document)
    return key


async def test_put_to_s3_is_conditional_signed_and_encrypted(recorder):
    endpoint, requests = recorder
    encryption = {"sse": "aws:kms", "kmsKeyId": "arn:aws:kms:eu-1:1:key/k"}
    key = await put(f"s3://bucket/prefix?endpoint={endpoint}&region=eu-1", encryption)
    (method, path, headers), *_ = requests
    assert (method, path) == ("PUT", "/bucket/prefix/" + key.path.replace("%", "%25"))
    assert headers["if-none-match"] == "*"
    assert "/eu-1/s3/aws4_request" in headers["authorization"]
    assert headers["x-amz-server-side-encryption"] == "aws:kms"
    assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == encryption["kmsKeyId"]


async def test_put_to_google_cloud_storage_is_conditional(recorder):
    endpoint, requests = recorder
    key = await put(f"gs://bucket/prefix?endpoint={endpoint}")
    method, path, headers = requests[0]
    assert (method, unquote(path)) == ("PUT", f"/bucket/prefix/{key.path}")
    assert headers["x-goog-if-generation-match"] == "0"


async def test_put_to_azure_is_conditional(recorder):
    endpoint, requests = recorder
    key = await put(f"az://container/prefix?account=me&endpoint={endpoint}")
    method, path, headers = requests[0]
    assert (method, path) == ("PUT", "/container/prefix/" + key.path.replace("%", "%25"))
    assert headers["if-none-match"] == "*"
    assert headers["authorization"].startswith("SharedKey me:")


@pytest.mark.parametrize(
    ("url", "encryption", "problem"),
    [
        ("ftp://x", None, "archive main: expected file:///PATH"),
        ("memory:", None, "archive main: expected file:///PATH"),
        ("file:///a", {"sse": "AES256"}, "encryption: expected an s3 URL beside it"),
        ("gs://b", {"sse": "AES256"}, "set the encryption of gs://b in its store"),
        ("s3://b", {"sse": "rot13"}, "encryption: sse: expected AES256"),
        ("s3://b", {"kmsKeyId": "k"}, "encryption: expected sse"),
        ("s3://b", {"sse": "AES256", "other": "k"}, "encryption: expected sse"),
        ("az://container", None, "Account must be specified"),
    ],
)
async def test_wrong_archive_is_a_permanent_error_that_names_it(url, encryption, problem):
    with pytest.raises(PermanentError) as caught:
        open_archive("main", url, encryption)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_wrong_service_account_of_google_is_an_error(monkeypatch, tmp_path):
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    path = tmp_path / "absent.json"
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(path))
    with pytest.raises(TtlError) as caught:
        await open_archive("main", "gs://bucket").put(*make())
    assert str(caught.value).startswith("archive main: ")
