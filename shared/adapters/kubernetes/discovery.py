"""Discovery: under which plural, scope and version the API server serves the kinds that have rules.

Only the requested API groups are read, with each version that is served:

    /apis                    for several groups: which are served, in which versions, and the preferred version
    /apis/GROUP              the same for one group: enough for a cold start
    /apis/GROUP/VERSION      the version's kinds; `/api/v1` for the core group, which has one version only

Answers are cached for a limited time. If a path answers 404, its group is read again.
"""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from shared.adapters.kubernetes.api_groups import ApiGroup, Kinds, parse_kinds, parse_versions
from shared.core.kinds.rule import KindRule
from shared.core.objects import get_text, list_mappings
from shared.errors import AbsentKindError, ForbiddenError, TryLaterError, TtlError

SERVED_SECONDS = 600.0
"""Time for which a served kind is cached."""

ABSENT_SECONDS = 20.0
"""Time for which an absent kind is cached: its CRD may be installed at any time. Less than a watch's poll interval."""

REREAD_SECONDS = 1.0
"""Minimum time between two reads of a group after a 404: otherwise invented timers could force a read each."""

READ_SECONDS_MAX = 10.0
"""Timeout of a discovery request: an aggregated API server may never answer, and must not delay other requests."""

Ask = Callable[[str], Awaitable[Any]]
"""GETs a path and returns the JSON of the answer; raises AbsentKindError for a 404."""

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
        await self._read({group for (group, _), of_kind in kinds.items() if not self._is_fresh(group, of_kind)})
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

    async def following(self, rule: KindRule, call: Callable[[KindRule], Awaitable[_T]]) -> tuple[_T, KindRule]:
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
            if current is None or (current.collection_path, current.scope) == (known.collection_path, known.scope):
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
            seconds = SERVED_SECONDS if group.choose(rules) else ABSENT_SECONDS
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

    async def _read_now(self, groups: set[str]) -> None:
        lists = await self._list_versions(groups)
        wanted = [version for versions in lists.values() if not isinstance(versions, TtlError) for version in versions]
        kinds = dict(zip(wanted, await asyncio.gather(*map(self._list_kinds, wanted)), strict=True))
        now = self._monotonic()
        for group in groups:
            versions = lists.get(group, ())
            self._attempted_at[group] = now
            self._failures.pop(group, None)
            if isinstance(versions, ForbiddenError):
                self._groups[group] = ApiGroup(now, {}, is_hidden=True)
            elif isinstance(versions, TtlError):
                self._failures[group] = versions  # the earlier answer stays cached
            else:
                is_hidden = any(isinstance(kinds[version], ForbiddenError) for version in versions)
                self._groups[group] = ApiGroup(now, {version: kinds[version] for version in versions}, is_hidden)

    async def _list_versions(self, groups: set[str]) -> Mapping[str, Sequence[str] | TtlError]:
        """Return the served versions of each group, the preferred one first, without groups that are not served."""
        core: dict[str, Sequence[str] | TtlError] = {"": ("v1",)} if "" in groups else {}
        named = groups - {""}
        if not named:
            return core
        try:
            if len(named) == 1:
                listed = [await self._get(f"/apis/{next(iter(named))}")]
            else:
                listed = list(list_mappings(await self._get("/apis"), "groups"))
        except AbsentKindError:
            return core
        except TtlError as error:
            return core | dict.fromkeys(named, error)
        return core | {name: parse_versions(one) for one in listed if (name := get_text(one, "name")) in named}

    async def _list_kinds(self, api_version: str) -> Kinds | TtlError:
        root = "apis" if "/" in api_version else "api"
        try:
            answer = await self._get(f"/{root}/{api_version}")
        except AbsentKindError:
            return {}
        except TtlError as error:
            return error
        return parse_kinds(answer)

    async def _get(self, path: str) -> Any:
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                return await self._ask(path)
        except TimeoutError:
            raise TryLaterError(f"the API server did not answer {path} within {READ_SECONDS_MAX:.0f} s") from None
