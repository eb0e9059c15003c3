"""Find the API groups of aggregated API servers, which may ignore the preconditions of a DELETE.

Neither discovery nor an object shows this, but APIServices do. The label selector leaves out those that
kube-apiserver registers by itself for CRDs: it resets them, so they are local. A group without a dot is built in.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

from shared.core.kinds.rule import KindRule
from shared.core.objects import get_in, get_text, list_mappings
from shared.errors import AbsentKindError, PermanentError

READ_SECONDS = 60.0
"""Time for which an answer is used, also a refusal."""

_SELECTOR = {"labelSelector": "kube-aggregator.kubernetes.io/automanaged!=true"}
_PATH = f"/apis/apiregistration.k8s.io/v1/apiservices?{urlencode(_SELECTOR)}"

_EFFECT = "all objects of kinds that are not built in are kept"
_log = logging.getLogger("ttl")


class Aggregation:
    """The aggregated API groups of one cluster.

    Args:
        ask: GETs a path, as for `Discovery`.
        monotonic: A monotonic clock, in seconds.
    """

    def __init__(self, ask: Callable[[str], Awaitable[Any]], monotonic: Callable[[], float]) -> None:
        self._ask, self._monotonic = ask, monotonic
        self._found: frozenset[str] | PermanentError = frozenset()
        self._read_at: float | None = None
        self._lock = asyncio.Lock()

    async def is_aggregated(self, rule: KindRule) -> bool:
        """See `shared.ports.Cluster`."""
        if "." not in rule.group:
            return False
        async with self._lock:
            if self._read_at is None or self._monotonic() - self._read_at >= READ_SECONDS:
                self._found = await self._read()
                self._read_at = self._monotonic()
        if isinstance(self._found, PermanentError):
            raise PermanentError(f"cannot determine whether API group {rule.group} is aggregated: {self._found}")
        return rule.group in self._found

    async def _read(self) -> frozenset[str] | PermanentError:
        try:
            answer = await self._ask(_PATH)
        except AbsentKindError:
            return frozenset()  # the server has no aggregation
        except PermanentError as error:
            _log.warning("could not list APIServices", extra={"fields": {"error": str(error), "effect": _EFFECT}})
            return error
        if get_text(answer, "kind") != "APIServiceList":
            return PermanentError(f"{_PATH}: expected an APIServiceList, got another answer")
        services = list_mappings(answer, "items")
        return frozenset(get_text(one, "spec.group") for one in services if get_in(one, "spec.service") is not None)
