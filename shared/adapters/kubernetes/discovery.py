"""Requests for the objects of a kind, by the path at which the API server serves it at the time of the request.

Discovery returns the plural, the scope and the version of each kind that has a rule. Answers are cached for a limited
time. If a path answers 404, its API group is read again.
"""

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from shared.adapters.kubernetes.api_groups import Aggregation, ApiGroup, Ask, read_groups
from shared.adapters.kubernetes.bodies import PathKind
from shared.adapters.kubernetes.metadata_only import METADATA_LIST
from shared.adapters.kubernetes.requests import Answer, ApiServer
from shared.adapters.kubernetes.transport import Transport
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import get_in, get_text, list_mappings
from shared.core.values.objects import quote as excerpt
from shared.errors import AbsentKindError, PermanentError, TtlError

SERVED_SECONDS = 600.0
"""Time for which a served kind is cached."""

ABSENT_KIND_SECONDS = 20.0
"""Time for which an absent kind is cached: its CRD may be installed at any time. Less than a watch's poll interval."""

REREAD_SECONDS = 1.0
"""Minimum time between two reads of a group after a 404: otherwise forged timers could force a read each."""

PathOf = Callable[[KindRule], str]
"""Returns the path of a request from the rule as served."""

_log = logging.getLogger("ttl")
_T = TypeVar("_T")


class Discovery:
    """Reads and caches what one API server serves.

    Args:
        ask: GETs a path of the API server.
        monotonic: A monotonic clock, in seconds.
    """

    def __init__(self, ask: Ask, monotonic: Callable[[], float]) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._groups: dict[str, ApiGroup] = {}
        self._failures: dict[str, TtlError] = {}  # errors of the last attempt
        self._attempted_at: dict[str, float] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._reported: set[tuple[str, ...]] = set()

    async def served(self, rules: Iterable[KindRule]) -> tuple[KindRule, ...]:
        """See `shared.ports.Cluster`."""
        kinds: dict[tuple[str, str], list[KindRule]] = {}
        for rule in rules:
            kinds.setdefault((rule.group, rule.kind), []).append(rule)
        if outdated := {group for (group, _), of_kind in kinds.items() if not self._is_fresh(group, of_kind)}:
            await self._read(outdated)
        found: list[KindRule] = []
        failures: list[TtlError] = []
        for of_kind in kinds.values():
            try:
                chosen = self._choose(of_kind)
            except TtlError as error:
                failures.append(error)
                found += of_kind
            else:
                found += [chosen] if chosen else []
        if failures and len(failures) == len(kinds):
            raise failures[0]
        return tuple(found)

    def known(self, rule: KindRule) -> KindRule:
        """Return the rule with its last known version, plural and scope, or unchanged; no request is made."""
        group = self._groups.get(rule.group)
        try:
            return (group and group.choose((rule,))) or rule
        except TtlError:
            return rule

    async def call_as_served(self, rule: KindRule, call: Callable[[KindRule], Awaitable[_T]]) -> tuple[_T, KindRule]:
        """Make a call by the last known path of a kind; if that path is gone, retry once by the kind's new path.

        Args:
            rule: The kind.
            call: Makes the call for the rule as served. It raises AbsentKindError only if the call had no effect.

        Returns:
            The result of the call, and the rule that it was made with.

        Raises:
            AbsentKindError: The kind is not served.
        """
        known = self.known(rule)
        try:
            return await call(known), known
        except AbsentKindError:
            current = await self._reread(known)
            if current is None or (resource_path(current), current.scope) == (resource_path(known), known.scope):
                raise
            return await call(current), current

    async def _reread(self, rule: KindRule) -> KindRule | None:
        """Read the group of a kind again after a 404; return the rule as served now, or None if it is not served."""
        group = self._groups.get(rule.group)
        if group is None or self._monotonic() - group.read_at >= REREAD_SECONDS:
            await self._read({rule.group})
        if failure := self._failures.get(rule.group):
            raise failure
        return self._choose((rule,))

    def _is_fresh(self, name: str, rules: Sequence[KindRule]) -> bool:
        group = self._groups.get(name)
        if group is None:
            return False
        try:
            seconds = SERVED_SECONDS if group.choose(rules) else ABSENT_KIND_SECONDS
        except TtlError:
            return False
        return self._monotonic() - group.read_at < seconds

    def _choose(self, rules: Sequence[KindRule]) -> KindRule | None:
        group = self._groups.get(rules[0].group)
        if group is None:
            raise self._failures[rules[0].group]
        chosen = group.choose(rules)
        if chosen is None and (versions := group.list_versions(rules[0].kind)):
            self._report_unknown_versions(rules, versions)
        return chosen

    def _report_unknown_versions(self, rules: Sequence[KindRule], versions: Sequence[str]) -> None:
        """Log, once per set of versions, that a kind needs a new rule or a newer release of this program."""
        about = (rules[0].kind, *versions)
        if about not in self._reported:
            self._reported.add(about)
            known = ", ".join(version for rule in rules for version in rule.api_versions)
            fields = {"kind": rules[0].kind, "served": ", ".join(versions), "known": known}
            _log.warning("kind served only in versions that no rule knows", extra={"fields": fields})

    async def _read(self, groups: set[str]) -> None:
        """Read groups. Concurrent reads of one group share one request, also if it fails."""
        if len(groups) != 1:
            await self._read_now(groups)
            return
        (group,) = groups
        wanted_at = self._monotonic()
        async with self._locks[group]:
            if self._attempted_at.get(group, -math.inf) < wanted_at:
                await self._read_now(groups)

    async def _read_now(self, names: set[str]) -> None:
        found = await read_groups(names, ask=self._ask, monotonic=self._monotonic)
        now = self._monotonic()
        for name, group in found.items():
            self._attempted_at[name] = now
            self._failures.pop(name, None)
            if isinstance(group, TtlError):
                self._failures[name] = group  # the earlier answer stays cached
            else:
                self._groups[name] = group


class VersionedApiServer(ApiServer):
    """An API server that may change the versions of kinds, or remove kinds, while this process runs.

    Args:
        transport: See `ApiServer`.
        options: See `ApiServer`.
    """

    def __init__(self, transport: Transport, **options: Any) -> None:
        super().__init__(transport, **options)
        self._discovery = Discovery(self._ask, time.monotonic)
        self._aggregation = Aggregation(self._ask, time.monotonic)

    async def served(self, rules: Iterable[KindRule]) -> tuple[KindRule, ...]:
        """See `shared.ports.Cluster`; `shared.adapters.kubernetes.discovery` sets how long an answer is cached."""
        return await self._discovery.served(rules)

    def known(self, rule: KindRule) -> KindRule:
        """Return the rule with its last known version, plural and scope; no request is made."""
        return self._discovery.known(rule)

    async def is_aggregated(self, rule: KindRule) -> bool:
        """See `shared.ports.Cluster`; `shared.adapters.kubernetes.api_groups` sets how long an answer is cached."""
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

        return await self._discovery.call_as_served(rule, request)

    async def _ask(self, path: str) -> Any:
        answer = await self.request("GET", path, missing_ok=True)
        return answer.body if answer else None


def resource_path(rule: PathKind, namespace: str = "", query: Mapping[str, str] | None = None) -> str:
    """Return the path of a kind's objects in one namespace, or in all if it is empty: `/apis/batch/v1/jobs`."""
    root = f"/{'apis' if rule.group else 'api'}/{rule.api_version}"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{place}/{rule.plural}{'?' if query else ''}{urlencode(query or {})}"


def object_path(rule: PathKind, namespace: str, name: str, query: Mapping[str, str] | None = None) -> str:
    """Return the path of an object, quoted so that a name cannot reach another path.

    `.` and `..` cannot be quoted, and no object has such a name.

    Raises:
        PermanentError: The name is `.`, `..` or empty, or the namespace is `.` or `..`.
    """
    if {namespace, name} & {".", ".."} or not name:
        expected = "expected a namespace and a name that an object can have"
        raise PermanentError(f"{expected}, got {excerpt(namespace)} and {excerpt(name)}")
    path = f"{resource_path(rule, namespace)}/{quote(name, safe='')}"
    return f"{path}{'?' if query else ''}{urlencode(query or {})}"


async def count_objects(server: ApiServer, rule: KindRule, namespace: str = "") -> int:
    """Count the objects of a kind without listing them.

    Args:
        server: The API server.
        rule: The kind.
        namespace: The only namespace to count in; empty for all.

    Raises:
        TryLaterError: The API server is overloaded or unreachable.
        PermanentError: This process may not list the objects, or the API server does not return their number.
    """
    path = resource_path(rule, namespace, {"limit": "1"})
    answer = await server.request("GET", path, accept=f"{METADATA_LIST},application/json")
    body = answer.body if answer else {}
    remaining = get_in(body, "metadata.remainingItemCount")
    if remaining is None and get_text(body, "metadata.continue"):
        raise PermanentError(f"cannot count {rule.plural}: the API server returned no remainingItemCount")
    return len(list(list_mappings(body, "items"))) + (remaining if isinstance(remaining, int) else 0)
