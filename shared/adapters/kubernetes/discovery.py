"""Requests for the objects of a kind, by the path at which the API server serves it at the time of the request.

Discovery returns the plural, the scope and the version of each kind that has a rule. Answers are cached for a limited
time. If a path answers 404, its API group is read again. Only the requested API groups are read, with each version:

    /apis                    for several groups: which are served, in which versions, and the preferred version
    /apis/GROUP              the same for one group: enough for a cold start
    /apis/GROUP/VERSION      the version's kinds; `/api/v1` for the core group, which has one version only

An aggregated API server may ignore the preconditions of a DELETE. Neither discovery nor an object shows this, but
APIServices do. The label selector leaves out those that kube-apiserver registers for CRDs: it serves these groups
itself, and overwrites changes of their APIServices. A group without a dot is built in.
"""

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from shared.adapters.kubernetes.requests import Answer, ApiServer, resource_path
from shared.adapters.kubernetes.transport import Transport
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import get_in, get_text, list_mappings
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError, TtlError

DISCOVERY_SECONDS_MAX = 10.0
"""Timeout of a discovery request: an aggregated API server may never answer, and must not delay other requests."""

Ask = Callable[[str], Awaitable[Any]]
"""GETs a path and returns the JSON of the answer; raises AbsentKindError for a 404."""

AGGREGATION_SECONDS = 60.0
"""Time for which the list of aggregated API groups is used, also a refusal."""

_SELECTOR = {"labelSelector": "kube-aggregator.kubernetes.io/automanaged!=true"}
_API_SERVICES = f"/apis/apiregistration.k8s.io/v1/apiservices?{urlencode(_SELECTOR)}"

_EFFECT = "all objects of kinds that are not built in are kept"
_log = logging.getLogger("ttl")


@dataclass(frozen=True, slots=True)
class ServedResource:
    """The plural and the scope of a kind in one version."""

    plural: str
    scope: str


Kinds = Mapping[str, ServedResource]
"""The resources of one version, by kind."""


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """An API group of a cluster, as discovery returned it.

    Attributes:
        read_at: The time of the read, in seconds of a monotonic clock.
        versions: By apiVersion, the preferred one first: its kinds, or the error of reading them.
        is_hidden: Whether this process may not read the discovery document of the group or of one of its versions.
    """

    read_at: float
    versions: Mapping[str, Kinds | TtlError]
    is_hidden: bool = False

    def choose(self, rules: Sequence[KindRule]) -> KindRule | None:
        """Choose among the rules of a kind, and return the rule with the served version, plural and scope.

        The rule that knows the preferred version takes precedence. If no rule knows a served version, and all rules
        say that the kind never finishes, any version is chosen: such a rule reads nothing of an object.

        Returns:
            None if the group serves no version that fits, or is hidden and the kind has several rules.

        Raises:
            TtlError: A version that takes precedence could not be read.
        """
        if self.is_hidden:
            return rules[0] if len(rules) == 1 else None  # with several rules, a choice would be a guess
        by_version: dict[str, KindRule] = {}
        for rule in rules:
            by_version |= {version: rule for version in rule.api_versions if version not in by_version}
        preferred = next(iter(self.versions), "")
        for version in sorted(by_version, key=lambda one: one != preferred):
            kinds = self.versions.get(version, {})
            if isinstance(kinds, TtlError):
                raise kinds
            if resource := kinds.get(rules[0].kind):
                return _as_served(by_version[version], version, resource)
        return self._choose_any(rules[0]) if all(rule.never_finishes for rule in rules) else None

    def _choose_any(self, rule: KindRule) -> KindRule | None:
        """Return the rule with the first version that serves its kind; None only if all versions could be read."""
        for version, kinds in self.versions.items():
            if isinstance(kinds, TtlError):
                raise kinds
            if resource := kinds.get(rule.kind):
                return _as_served(rule, version, resource)
        return None

    def list_versions(self, kind: str) -> list[str]:
        """Return the versions that serve a kind, also those that no rule knows."""
        read = {version: kinds for version, kinds in self.versions.items() if not isinstance(kinds, TtlError)}
        return [version for version, kinds in read.items() if kind in kinds]


def parse_versions(group: Mapping[str, Any]) -> list[str]:
    """Return the apiVersions of an APIGroup, the preferred one first."""
    served = [get_text(one, "groupVersion") for one in list_mappings(group, "versions")]
    preferred = get_text(group, "preferredVersion.groupVersion")
    return sorted(filter(None, served), key=lambda one: one != preferred)


def _parse_kinds(resources: Any) -> Kinds:
    """Return the kinds of an APIResourceList."""
    kinds: dict[str, ServedResource] = {}
    for one in list_mappings(resources, "resources"):
        name, scope = get_text(one, "name"), "Namespaced" if one.get("namespaced") is True else "Cluster"
        if name and "/" not in name:  # skip subresources: pods/status has kind Pod too
            kinds.setdefault(get_text(one, "kind"), ServedResource(name, scope))
    return kinds


def _as_served(rule: KindRule, version: str, resource: ServedResource) -> KindRule:
    if (rule.api_version, rule.plural, rule.scope) == (version, resource.plural, resource.scope):
        return rule
    others = tuple(one for one in rule.api_versions if one != version)
    update = {"api_versions": (version, *others), "plural": resource.plural, "scope": resource.scope}
    return rule.model_copy(update=update)


async def read_groups(names: set[str], *, ask: Ask, monotonic: Callable[[], float]) -> dict[str, ApiGroup | TtlError]:
    """Read API groups, each with the kinds of its versions; a group that cannot be read has its error.

    Args:
        names: The groups; the core group is empty.
        ask: GETs a path of the API server.
        monotonic: A monotonic clock, in seconds.
    """
    lists = await _list_versions(names, ask)
    wanted = [version for versions in lists.values() if not isinstance(versions, TtlError) for version in versions]
    kinds = dict(zip(wanted, await asyncio.gather(*(_list_kinds(one, ask) for one in wanted)), strict=True))
    now = monotonic()
    groups: dict[str, ApiGroup | TtlError] = {}
    for name in names:
        versions = lists.get(name, ())
        if isinstance(versions, ForbiddenError):
            groups[name] = ApiGroup(now, {}, is_hidden=True)
        elif isinstance(versions, TtlError):
            groups[name] = versions
        else:
            is_hidden = any(isinstance(kinds[version], ForbiddenError) for version in versions)
            groups[name] = ApiGroup(now, {version: kinds[version] for version in versions}, is_hidden)
    return groups


async def _list_versions(names: set[str], ask: Ask) -> Mapping[str, Sequence[str] | TtlError]:
    """Return the served versions of each group, the preferred one first, without groups that are not served."""
    core: dict[str, Sequence[str] | TtlError] = {"": ("v1",)} if "" in names else {}
    named = names - {""}
    if not named:
        return core
    try:
        if len(named) == 1:
            listed = [await _get(f"/apis/{next(iter(named))}", ask)]
        else:
            listed = list(list_mappings(await _get("/apis", ask), "groups"))
    except AbsentKindError:
        return core
    except TtlError as error:
        return core | dict.fromkeys(named, error)
    return core | {name: parse_versions(one) for one in listed if (name := get_text(one, "name")) in named}


async def _list_kinds(api_version: str, ask: Ask) -> Kinds | TtlError:
    root = "apis" if "/" in api_version else "api"
    try:
        answer = await _get(f"/{root}/{api_version}", ask)
    except AbsentKindError:
        return {}
    except TtlError as error:
        return error
    return _parse_kinds(answer)


async def _get(path: str, ask: Ask) -> Any:
    try:
        async with asyncio.timeout(DISCOVERY_SECONDS_MAX):
            return await ask(path)
    except TimeoutError:
        limit = f"{DISCOVERY_SECONDS_MAX:.0f} s"
        raise TryLaterError(f"the API server sent no complete answer to {path} within {limit}") from None


class Aggregation:
    """The aggregated API groups of one cluster.

    Args:
        ask: GETs a path of the API server.
        monotonic: A monotonic clock, in seconds.
    """

    def __init__(self, ask: Ask, monotonic: Callable[[], float]) -> None:
        self._ask, self._monotonic = ask, monotonic
        self._found: frozenset[str] | PermanentError = frozenset()
        self._read_at: float | None = None
        self._lock = asyncio.Lock()

    async def is_aggregated(self, rule: KindRule) -> bool:
        """See `shared.ports.Cluster`."""
        if "." not in rule.group:
            return False
        async with self._lock:
            if self._read_at is None or self._monotonic() - self._read_at >= AGGREGATION_SECONDS:
                self._found = await self._read()
                self._read_at = self._monotonic()
        if isinstance(self._found, PermanentError):
            raise PermanentError(f"cannot determine whether API group {rule.group} is aggregated: {self._found}")
        return rule.group in self._found

    async def _read(self) -> frozenset[str] | PermanentError:
        try:
            answer = await self._ask(_API_SERVICES)
        except AbsentKindError:
            return frozenset()  # the server has no aggregation
        except PermanentError as error:
            _log.warning("could not list APIServices", extra={"fields": {"error": str(error), "effect": _EFFECT}})
            return error
        if get_text(answer, "kind") != "APIServiceList":
            return PermanentError(f"{_API_SERVICES}: expected an APIServiceList, got another answer")
        services = list_mappings(answer, "items")
        return frozenset(get_text(one, "spec.group") for one in services if get_in(one, "spec.service") is not None)


SERVED_SECONDS = 600.0
"""Time for which a served kind is cached."""

ABSENT_KIND_SECONDS = 20.0
"""Time for which an absent kind is cached: its CRD may be installed at any time. Less than a watch's poll interval."""

REREAD_SECONDS = 1.0
"""Minimum time between two reads of a group after a 404: otherwise forged timers could force a read each."""

PathOf = Callable[[KindRule], str]
"""Returns the path of a request from the rule as served."""

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
        """See `shared.ports.Cluster`."""
        return await self._discovery.served(rules)

    def known(self, rule: KindRule) -> KindRule:
        """Return the rule with its last known version, plural and scope; no request is made."""
        return self._discovery.known(rule)

    async def is_aggregated(self, rule: KindRule) -> bool:
        """See `shared.ports.Cluster`."""
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
