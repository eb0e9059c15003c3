"""Which API server a process connects to, and what it loads for that. test_cluster_errors.py has the kubeconfigs."""

import subprocess
import sys
from pathlib import Path

import pytest

from shared.adapters.auth.identity import GivenToken
from shared.adapters.kubernetes import connect as connecting
from shared.adapters.kubernetes.access import Access
from shared.adapters.kubernetes.connect import connect
from shared.errors import PermanentError, TryLaterError
from tests.builders import ROOT

pytestmark = pytest.mark.anyio

ACCESS = Access("https://10.0.0.1", "", GivenToken("secret"))


@pytest.fixture
def pod(pem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Pod with a service account, behind a proxy: returns the folder of the account."""
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_text(pem)
    monkeypatch.setattr(connecting, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    return tmp_path


@pytest.mark.usefixtures("pod")
@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00:10:96::1", "https://[fd00:10:96::1]:443")]
)
async def test_pod_connects_to_its_cluster_without_a_proxy(
    host: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    cluster = await connect()
    assert cluster.server == server
    assert cluster._transport._options == {}
    assert cluster._transport.tls.check_hostname
    await cluster.close()


async def test_ca_of_the_account_that_is_no_certificate_is_an_error_that_may_pass(pod: Path) -> None:
    (pod / "ca.crt").write_text("half of a fi")
    with pytest.raises(TryLaterError, match=r"ca\.crt: expected the certificates of the cluster's CA"):
        await connect()


@pytest.mark.parametrize("missing", ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "token", "ca.crt"])
@pytest.mark.parametrize("left", ["", None], ids=["empty", "absent"])
async def test_pod_without_its_whole_account_uses_the_kubeconfig(
    missing: str, left: str | None, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing.isupper():
        monkeypatch.setenv(missing, left) if left is not None else monkeypatch.delenv(missing)
    elif left is None:
        (pod / missing).unlink()
    else:
        (pod / missing).write_text(left)
    monkeypatch.setattr("kubernetes.aio.config.KUBE_CONFIG_DEFAULT_LOCATION", str(pod / "none"))
    with pytest.raises(PermanentError, match="the file does not exist"):
        await connect()


@pytest.mark.usefixtures("pod")
async def test_server_of_the_settings_takes_precedence_and_is_reached_by_the_proxy() -> None:
    cluster = await connect(access=ACCESS)
    assert cluster.server == ACCESS.server
    assert cluster._transport._options == {"proxy": "http://proxy:3128"}
    await cluster.close()


@pytest.mark.parametrize("access", ["settings", "Pod"])
def test_kubernetes_client_is_not_loaded_without_a_kubeconfig(access: str, pod: Path) -> None:
    """Its import takes a quarter of a second, which each cold start of a function would wait for."""
    code = f"""
import asyncio, sys
from pathlib import Path
from shared.adapters.auth.identity import GivenToken
from shared.adapters.kubernetes import connect
from shared.adapters.kubernetes.connect import Access
connect.SERVICE_ACCOUNT = Path({str(pod)!r})
access = Access("https://10.0.0.1", "", GivenToken("x")) if {access == "settings"} else None
cluster = asyncio.run(connect.connect(access=access))
print(cluster.server, *sorted(each for each in ("kubernetes", "yaml") if each in sys.modules))
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["https://10.0.0.1" if access == "settings" else "https://10.96.0.1:443"]
