"""Service account tokens from the TokenRequest API: the identity of a process outside the cluster at its Broker."""

from collections.abc import Awaitable, Callable
from typing import cast
from urllib.parse import quote

from shared.adapters.auth.identity import Token
from shared.adapters.auth.token_text import is_token
from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.core.values.objects import get_text, parse_instant
from shared.errors import TryLaterError
from shared.ports import Cluster

EXPIRATION_SECONDS = 3_600
FRESH_SHARE = 0.8
"""Share of a token's lifetime after which it is renewed, as by a kubelet."""


class AccountTokens:
    """Requests the tokens of a service account.

    Args:
        connected: Returns the cluster; this process may create tokens for the account there.
        account: `NAMESPACE/NAME`.
        audience: The audience of the tokens.
    """

    def __init__(self, connected: Callable[[], Awaitable[Cluster]], account: str, audience: str) -> None:
        self._connected = connected
        self._namespace, _, self._name = account.partition("/")
        self._audience = audience

    async def __call__(self) -> Token:
        """Request the next token.

        Raises:
            TryLaterError: The API server returns no token now.
            ForbiddenError: This process has no right to create tokens for the account.
        """
        cluster = cast("KubernetesCluster", await self._connected())
        account = f"{quote(self._namespace, safe='')}/serviceaccounts/{quote(self._name, safe='')}"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [self._audience], "expirationSeconds": EXPIRATION_SECONDS},
        }
        answer = await cluster.request("POST", f"/api/v1/namespaces/{account}/token", body=request)
        text = get_text(answer.body, "status.token") if answer else ""
        if answer is None or not is_token(text):
            raise TryLaterError("TokenRequest: expected a token in status.token, got none")
        try:
            expires_at = parse_instant(get_text(answer.body, "status.expirationTimestamp"))
        except ValueError as error:
            raise TryLaterError(f"TokenRequest: status.expirationTimestamp: {error}") from None
        left = (expires_at - answer.read_at).total_seconds()
        return Token(text, fresh_seconds=left * FRESH_SHARE, valid_seconds=left)
