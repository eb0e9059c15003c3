"""Tokens of a real kube-apiserver, by TokenRequest as a Broker asks for them, and its keys as a Pod may read them."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from shared.adapters.auth.callers import ApiServerIssuer, Callers, Keys
from shared.errors import EventError
from tests.servers import shared_server  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio

AUDIENCE = "ttl-after-finished"


def token_of(api, namespace, account, *audiences, **spec):
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    return api.call("POST", path, {**body, "spec": {"audiences": list(audiences), **spec}})["status"]["token"]


@pytest.fixture
def account(api, namespace, tmp_path):
    """What Kubernetes mounts into the Pod of an account without any rights."""
    for name in ("schedule", "trigger", "stranger"):
        api.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    (tmp_path / "ca.crt").write_bytes(api.server.ca.read_bytes())
    (tmp_path / "token").write_text(token_of(api, namespace, "schedule"))
    return tmp_path


@pytest.fixture
def admit(api, namespace, account: Path):
    keys = Keys(ApiServerIssuer(api.server.url, account))
    return Callers((f"system:serviceaccount:{namespace}:trigger",), audience=AUDIENCE, keys=keys).admit


async def test_token_of_the_api_server_is_admitted(api, namespace, admit):
    await admit(f"Bearer {token_of(api, namespace, 'trigger', AUDIENCE)}")
    await admit(f"Bearer {token_of(api, namespace, 'trigger', 'another', AUDIENCE)}")


async def test_token_for_another_audience_is_rejected(api, namespace, admit):
    expected = r"signed by https://kubernetes\.default\.svc for audience ttl-after-finished"
    with pytest.raises(EventError, match=expected) as error:
        await admit(f"Bearer {token_of(api, namespace, 'trigger')}")
    assert error.value.status == 401


async def test_token_of_another_account_is_rejected(api, namespace, admit):
    with pytest.raises(EventError, match=f"got subject 'system:serviceaccount:{namespace}:stranger'") as error:
        await admit(f"Bearer {token_of(api, namespace, 'stranger', AUDIENCE)}")
    assert error.value.status == 403


async def test_administrator_token_without_the_issuer_is_rejected(api, admit):
    with pytest.raises(EventError) as error:
        await admit(f"Bearer {api.server.token}")
    assert error.value.status == 401


def test_keys_without_an_account_are_not_readable(api):
    """Why the Pods of schedule and timers, which have no rights, need a token all the same."""
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{api.server.url}/openid/v1/jwks", context=api.server.ssl, timeout=30)
    assert error.value.code in {401, 403}
    error.value.close()
