"""Requests for the objects of a kind, by the path at which the API server serves it at the time of the request."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from shared.adapters.kubernetes.aggregation import Aggregation
from shared.adapters.kubernetes.discovery import Discovery
from shared.adapters.kubernetes.requests import Answer, ApiServer
from shared.core.kinds.rule import KindRule
from shared.core.objects import quote as excerpt
from shared.errors import PermanentError

PathOf = Callable[[KindRule], str]
"""Returns the path of a request from the rule as served."""


class VersionedApiServer(ApiServer):
    """An API server that may change the versions of kinds, or remove kinds, while this process runs.

    Args:
        client: See `ApiServer`.
        options: See `ApiServer`.
    """

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._discovery = Discovery(self._ask, time.monotonic)
        self._aggregation = Aggregation(self._ask, time.monotonic)

    async def served(self, rules: Iterable[KindRule]) -> tuple[KindRule, ...]:
        """See `shared.ports.Cluster`; `shared.adapters.kubernetes.discovery` sets how long an answer is cached."""
        return await self._discovery.served(rules)

    def known(self, rule: KindRule) -> KindRule:
        """Return the rule with its last known version, plural and scope; no request is made."""
        return self._discovery.known(rule)

    async def is_aggregated(self, rule: KindRule) -> bool:
        """See `shared.ports.Cluster`; `shared.adapters.kubernetes.aggregation` sets how long an answer is cached."""
        return await self._aggregation.is_aggregated(rule)

    async def request_of(
        self, rule: KindRule, method: str, path_of: PathOf, **options: Any
    ) -> tuple[Answer | None, KindRule]:
        """Make one request for objects of a kind; repeat it once if the kind is served at another path.

        Args:
            rule: The kind.
            method: See `ApiServer.request`.
            path_of: Returns the path.
            options: See `ApiServer.request`.

        Returns:
            The answer, or None if the object does not exist; and the rule as served.

        Raises:
            AbsentKindError: The kind is not served.
        """

        async def request(served: KindRule) -> Answer | None:
            return await self.request(method, path_of(served), missing_ok=True, **options)

        return await self._discovery.following(rule, request)

    async def _ask(self, path: str) -> Any:
        answer = await self.request("GET", path, missing_ok=True)
        return answer.body if answer else None


def collection_path(rule: KindRule, namespace: str, query: Mapping[str, str]) -> str:
    """Return the path of a kind's objects, with a query."""
    return f"{rule.path_in(quote(namespace, safe=''))}?{urlencode(query)}"


def object_path(rule: KindRule, namespace: str, name: str) -> str:
    """Return the path of an object, quoted so that a name cannot reach another path.

    `.` and `..` cannot be quoted, and no object has such a name.

    Raises:
        PermanentError: The name is `.`, `..` or empty, or the namespace is `.` or `..`.
    """
    if {namespace, name} & {".", ".."} or not name:
        expected = "expected a namespace and a name that an object can have"
        raise PermanentError(f"{expected}, got {excerpt(namespace)} and {excerpt(name)}")
    return f"{rule.path_in(quote(namespace, safe=''))}/{quote(name, safe='')}"


def typed(obj: Mapping[str, Any], rule: KindRule) -> dict[str, Any]:
    """Set apiVersion and kind: items of a built-in kind's LIST lack them, and those of a metadata LIST differ."""
    return {**obj, "apiVersion": rule.api_version, "kind": rule.kind}
