"""Requests for the objects of a kind, by the paths under which the API server serves it now."""

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
"""The path of a request for a kind, which is as its rule says."""


class FollowingApiServer(ApiServer):
    """An API server whose kinds may go to other versions, or be gone, while this process runs.

    Args:
        client: See `ApiServer`.
        options: See `ApiServer`.
    """

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._discovery = Discovery(self._ask, time.monotonic)
        self._aggregation = Aggregation(self._ask, time.monotonic)

    async def served(self, rules: Iterable[KindRule]) -> tuple[KindRule, ...]:
        """See `shared.ports.Cluster`; how long an answer counts is said in `shared.adapters.kubernetes.discovery`."""
        return await self._discovery.served(rules)

    def known(self, rule: KindRule) -> KindRule:
        """The rule as it was served when that was last asked for."""
        return self._discovery.known(rule)

    async def is_aggregated(self, rule: KindRule) -> bool:
        """See `shared.ports.Cluster`; how long an answer counts is said in `shared.adapters.kubernetes.aggregation`."""
        return await self._aggregation.is_aggregated(rule)

    async def request_of(
        self, rule: KindRule, method: str, path_of: PathOf, **options: Any
    ) -> tuple[Answer | None, KindRule]:
        """One request for objects of a kind; one more where the kind has gone elsewhere.

        Args:
            rule: The kind.
            method: See `ApiServer.request`.
            path_of: Makes the path.
            options: See `ApiServer.request`.

        Returns:
            The answer, None where there is no such object; and the rule as it is served.

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
    """The path of a kind's objects, with a query."""
    return f"{rule.path_in(quote(namespace, safe=''))}?{urlencode(query)}"


def object_path(rule: KindRule, namespace: str, name: str) -> str:
    """Quoted, so that no name can reach another path; `.` and `..` cannot be, and no object has such a name.

    Raises:
        PermanentError: It is one of these, or empty.
    """
    if {namespace, name} & {".", ".."} or not name:
        raise PermanentError(f"expected a name that an object can have, got {excerpt(namespace)} and {excerpt(name)}")
    return f"{rule.path_in(quote(namespace, safe=''))}/{quote(name, safe='')}"
