"""Connect to the API server: as the settings say, else in-cluster, else by the kubeconfig's context.

Only the kubeconfig needs the Kubernetes client, so that a function starts without it. The TTL_API_* settings, for a
process outside its cluster, are validated at start. Such a process gets its token for the Broker by a TokenRequest.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast
from urllib.parse import quote

from shared.adapters.auth.identity import (
    RenewedToken,
    Token,
    file_tokens,
)
from shared.adapters.http_client import is_token
from shared.adapters.kubernetes.access import Access, CaFile, tls_context
from shared.adapters.kubernetes.cluster import KubernetesCluster, Memory
from shared.adapters.kubernetes.transport import Transport, get_proxy
from shared.core.values.objects import get_text, parse_instant
from shared.errors import TryLaterError
from shared.ports import Cluster

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
