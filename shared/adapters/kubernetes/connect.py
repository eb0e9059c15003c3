"""Connect to the API server: as the settings say, else in-cluster, else by the kubeconfig's context.

Only the kubeconfig needs the Kubernetes client, so that a function starts without it. The TTL_API_* settings, for a
process outside its cluster, are validated at start. Such a process gets its token for the Broker by a TokenRequest.
"""

import base64
import binascii
import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import quote, urlsplit

from shared.adapters.auth.identity import (
    GivenToken,
    GoogleTokens,
    Identity,
    RenewedToken,
    Token,
    file_tokens,
    read_token,
)
from shared.adapters.config.settings import Settings, SettingsError
from shared.adapters.http_client import is_token
from shared.adapters.kubernetes.cluster import KubernetesCluster, Memory
from shared.adapters.kubernetes.transport import CaFile, Transport, get_proxy, tls_context
from shared.core.values.objects import get_text, parse_instant
from shared.errors import TryLaterError
from shared.ports import Cluster

_PEM = "-----BEGIN"
_PEM_IN_BASE64 = "LS0tLS1CRUdJTi"
_EXPECTED_CA = "expected certificates in PEM, their base64, or a file with them"


@dataclass(frozen=True, slots=True)
class Access:
    """An API server and the identity of this process there.

    Attributes:
        server: The URL, without a trailing slash.
        ca: The trusted certificates, in PEM; empty to trust those of the system.
        ca_file: The file that they are from; None if they are from no file.
    """

    server: str
    ca: str
    identity: Identity
    ca_file: CaFile | None = None


def get_access(settings: Settings) -> Access | None:
    """Return the API server of the settings; None if they name none, so that in-cluster access or a kubeconfig applies.

    Raises:
        SettingsError: The settings are incomplete, contradict each other, or name an unreadable file.
    """
    identities = {
        "TTL_API_TOKEN": settings.api_token,
        "TTL_API_TOKEN_FILE": settings.api_token_file,
        "TTL_API_IDENTITY": settings.api_identity,
    }
    given = [name for name, value in identities.items() if value]
    if not settings.api_server:
        for name in [*given, *(["TTL_API_CA"] if settings.api_ca else [])]:
            raise SettingsError(f"{name}: expected TTL_API_SERVER to be set too, but it is not set")
        return None
    if len(given) != 1:
        raise SettingsError(
            f"TTL_API_SERVER: expected exactly one of {', '.join(identities)} to be set too, "
            f"got {' and '.join(given) or 'none'}"
        )
    if settings.api_ca and urlsplit(settings.api_server).scheme == "http":
        raise SettingsError("TTL_API_CA: expected TTL_API_SERVER to be an https:// URL, got an http:// one")
    ca_file = None if _is_given(settings.api_ca) else CaFile(Path(settings.api_ca), _decode)
    return Access(settings.api_server, _parse_ca(settings.api_ca), _identity_of(settings), ca_file)


def _identity_of(settings: Settings) -> Identity:
    path = settings.api_token_file
    if settings.api_token:
        return GivenToken(settings.api_token.get_secret_value())
    if path is None:
        return RenewedToken(GoogleTokens())
    try:
        read_token(path)
    except TryLaterError as error:
        raise SettingsError(f"TTL_API_TOKEN_FILE: {error}") from None
    return RenewedToken(file_tokens(path))


def _parse_ca(text: str) -> str:
    """Return the PEM given as PEM, as its base64, or as a file with either."""
    if not text:
        return ""
    pem = _decode(text) if _is_given(text) else _decode(_read(text))
    try:
        ssl.create_default_context(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise SettingsError(f"TTL_API_CA: {_EXPECTED_CA}, got an unusable one ({error})") from None
    return pem


def _is_given(text: str) -> bool:
    return not text or _PEM in text or text.lstrip().startswith(_PEM_IN_BASE64)


def _decode(text: str) -> str:
    if _PEM in text:
        return text
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise SettingsError(f"TTL_API_CA: {_EXPECTED_CA}, got neither PEM nor base64") from None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:  # ValueError: not a text file, or an invalid file name
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise SettingsError(f"TTL_API_CA: {_EXPECTED_CA}, got {path[:60]!r}: {reason}") from None


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder with the token and the CA of a Pod's service account."""


async def connect(
    *,
    access: Access | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
    memory: Memory | None = None,
) -> KubernetesCluster:
    """Connect to the cluster of the settings, else to the one this process runs in, else to that of the kubeconfig.

    Args:
        access: The API server of the settings, if they name one.
        kubeconfig: A file; `$KUBECONFIG` or `~/.kube/config` if None.
        context: A context other than the current one; if set, the kubeconfig is used, also in a cluster.
        memory: The store for objects that a watch receives.

    Raises:
        PermanentError: There is no usable configuration; the message names the error in one sentence.
        TryLaterError: The CA of the Pod's service account cannot be read now.
    """
    if kubeconfig is None and context is None:
        if access:
            return _connect_by_access(access, memory)
        if cluster := _connect_in_cluster(memory):
            return cluster
    from shared.adapters.kubernetes.kubeconfig import transport_of  # noqa: PLC0415 - loads the Kubernetes client

    transport, refresher = await transport_of(kubeconfig, context)
    return KubernetesCluster(transport, memory, refresher=refresher)


def own_namespace() -> str:
    """Return the namespace of the Pod in which this process runs; empty outside a Pod, or without its account."""
    place = SERVICE_ACCOUNT / "namespace"
    if not (os.getenv("KUBERNETES_SERVICE_HOST") and _has_content(SERVICE_ACCOUNT / "token") and _has_content(place)):
        return ""
    return place.read_text().strip()


def _connect_by_access(access: Access, memory: Memory | None) -> KubernetesCluster:
    proxy = get_proxy(access.server)
    options = {"proxy": proxy} if proxy else {}
    transport = Transport(access.server, tls_context(ca=access.ca or None), options, ca=access.ca_file)
    return KubernetesCluster(transport, memory, identity=access.identity)


def _connect_in_cluster(memory: Memory | None) -> KubernetesCluster | None:
    """Connect by the Pod's service account; return None outside a Pod, or in a Pod without its token or CA.

    The API server of a Pod's own cluster is reached without a proxy.
    """
    host, port = os.getenv("KUBERNETES_SERVICE_HOST"), os.getenv("KUBERNETES_SERVICE_PORT")  # set by the kubelet
    token, ca = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    if not (host and port and _has_content(token) and _has_content(ca)):
        return None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        tls = tls_context(ca_file=str(ca))
    except (OSError, ValueError) as error:  # the kubelet may be writing it
        raise TryLaterError(f"{ca}: expected the certificates of the cluster's CA: {error}") from None
    return KubernetesCluster(Transport(server, tls, ca=CaFile(ca)), memory, identity=RenewedToken(file_tokens(token)))


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


EXPIRATION_SECONDS = 3_600
FRESH_SHARE = 0.8
"""Share of a token's lifetime after which it is renewed, as by a kubelet."""


async def fetch_account_token(connected: Callable[[], Awaitable[Cluster]], account: str, audience: str) -> Token:
    """Request the next token of a service account.

    Args:
        connected: Returns the cluster; this process may create tokens for the account there.
        account: `NAMESPACE/NAME`.
        audience: The audience of the token.

    Raises:
        TryLaterError: The API server returns no token now.
        ForbiddenError: This process has no right to create tokens for the account.
    """
    cluster = cast("KubernetesCluster", await connected())
    namespace, _, name = account.partition("/")
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{quote(name, safe='')}/token"
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [audience], "expirationSeconds": EXPIRATION_SECONDS},
    }
    answer = await cluster.request("POST", path, body=request)
    text = get_text(answer.body, "status.token") if answer else ""
    if answer is None or not is_token(text):
        raise TryLaterError("TokenRequest: expected a token in status.token, got none")
    try:
        expires_at = parse_instant(get_text(answer.body, "status.expirationTimestamp"))
    except ValueError as error:
        raise TryLaterError(f"TokenRequest: status.expirationTimestamp: {error}") from None
    left = (expires_at - answer.read_at).total_seconds()
    return Token(text, fresh_seconds=left * FRESH_SHARE, valid_seconds=left)
