"""Connect to the API server: as the settings say, else in-cluster, else by the kubeconfig's context.

Only the kubeconfig needs the Kubernetes client, so that a function starts without it.
"""

import os
from pathlib import Path

from shared.adapters.auth.identity import FileTokens, RenewedToken
from shared.adapters.kubernetes.access import Access
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.tls import CaFile, tls_context
from shared.adapters.kubernetes.transport import Transport, get_proxy
from shared.adapters.kubernetes.watch_lines import Memory
from shared.errors import TryLaterError

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
    return KubernetesCluster(Transport(server, tls, ca=CaFile(ca)), memory, identity=RenewedToken(FileTokens(token)))


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
