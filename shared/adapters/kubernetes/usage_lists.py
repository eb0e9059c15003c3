"""LISTs of any kind, and of Secrets and ConfigMaps without their data: implements `shared.ports.usage.UsageCluster`."""

from collections.abc import Callable
from functools import partial
from typing import Any

from shared.adapters.kubernetes.bodies import ListReader, typed
from shared.adapters.kubernetes.container_logs import LoggingApiServer
from shared.adapters.kubernetes.discovery import object_path, resource_path
from shared.adapters.kubernetes.listable_kinds import AGGREGATED, discover_listable
from shared.adapters.kubernetes.metadata_only import INCLUDE_METADATA, TABLE, as_target, read_rows
from shared.adapters.kubernetes.page_limits import PAGE_BYTES_MAX, PAGE_LIMIT, PageLimits
from shared.adapters.kubernetes.refusals import GoneError
from shared.adapters.kubernetes.requests import Answer
from shared.core.objects import get_text, list_mappings, ref_of
from shared.core.policy.unused import CONFIG_MAPS, SECRETS
from shared.core.references.reference import TargetKind
from shared.errors import AbsentKindError, PermanentError
from shared.ports import Page, Snapshot, Unreadable
from shared.ports.usage import ListableKind, ListableKinds, Target, TargetPage

_RULES = {TargetKind.SECRET: SECRETS, TargetKind.CONFIG_MAP: CONFIG_MAPS}


class ListingApiServer(LoggingApiServer):
    """An API server whose kinds, and the objects of each, can be listed.

    Args:
        client: See `ApiServer`.
        options: See `ApiServer`.
    """

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._page_limits = PageLimits()

    async def list_kinds(self) -> ListableKinds:
        """See `shared.ports.usage.UsageCluster`."""
        core, named = await self._document("/api"), await self._document("/apis")

        async def read(path: str) -> Any:
            return (await self._document(path)).body

        return await discover_listable(core.body, named.body, read, core.read_at)

    async def list_objects(
        self, kind: ListableKind, *, namespace: str = "", continue_token: str = "", limit: int = PAGE_LIMIT
    ) -> Page:
        """See `shared.ports.usage.UsageCluster`."""
        if kind.target is not None:
            raise PermanentError(f"{kind.name}: expected another kind, since the data of these is never read")
        ask = partial(self._list_objects, kind, namespace, continue_token)
        return await self._page_limits.fit(kind.name, limit, ask)

    async def list_targets(
        self, kind: TargetKind, *, namespace: str = "", continue_token: str = "", limit: int = PAGE_LIMIT
    ) -> TargetPage:
        """See `shared.ports.usage.UsageCluster`."""
        ask = partial(self._list_targets, kind, namespace, continue_token)
        return await self._page_limits.fit(kind, limit, ask)

    async def get_target(self, kind: TargetKind, namespace: str, name: str) -> Target | None:
        """See `shared.ports.usage.UsageCluster`."""
        path = f"{object_path(_RULES[kind], namespace, name)}?includeObject=Metadata"
        answer = await self.request("GET", path, accept=TABLE, missing_ok=True)
        if answer is None:
            return None
        return next(iter(read_rows(answer.body, kind, answer.read_at, answer.ahead)), None)

    async def get_with_data(self, kind: TargetKind, namespace: str, name: str) -> Snapshot | None:
        """See `shared.ports.usage.UsageCluster`."""
        rule = _RULES[kind]
        answer = await self.request("GET", object_path(rule, namespace, name), missing_ok=True)
        return None if answer is None else Snapshot(typed(answer.body, rule), answer.read_at, answer.ahead)

    async def _document(self, path: str) -> Answer:
        answer = await self.request("GET", path, accept=AGGREGATED, missing_ok=True)
        if answer is None:
            raise AbsentKindError(f"this cluster does not serve {path}")
        return answer

    async def _list_objects(self, kind: ListableKind, namespace: str, token: str, limit: int) -> Page:
        reader = ListReader(PAGE_BYTES_MAX, is_single=limit == 1)
        path_of = partial(resource_path, kind, namespace)
        answer = await self._list(path_of, {"limit": str(limit)}, token, accept="application/json", read=reader.read)
        return Page(
            items=[typed(item, kind) for item in list_mappings(answer.body, "items")],
            read_at=answer.read_at,
            continue_token=get_text(answer.body, "metadata.continue"),
            resource_version=get_text(answer.body, "metadata.resourceVersion"),
            unreadable=[Unreadable(ref_of(typed(one.obj, kind)), one.problem) for one in reader.unread],
            is_large=reader.is_large,
            ahead=answer.ahead,
        )

    async def _list_targets(self, kind: TargetKind, namespace: str, token: str, limit: int) -> TargetPage:
        reader = ListReader(PAGE_BYTES_MAX, is_single=limit == 1, items="rows")
        path_of = partial(resource_path, _RULES[kind], namespace)
        query = {"limit": str(limit), **INCLUDE_METADATA}
        answer = await self._list(path_of, query, token, accept=TABLE, read=reader.read)
        left_out = (as_target(one.obj.get("object"), kind) for one in reader.unread)
        return TargetPage(
            targets=read_rows(answer.body, kind, answer.read_at, answer.ahead),
            read_at=answer.read_at,
            continue_token=get_text(answer.body, "metadata.continue"),
            resource_version=get_text(answer.body, "metadata.resourceVersion"),
            unreadable=[Unreadable(ref_of(obj), one.problem) for obj, one in zip(left_out, reader.unread, strict=True)],
        )

    async def _list(
        self, path_of: Callable[[dict[str, str]], str], query: dict[str, str], token: str, **options: Any
    ) -> Answer:
        """Request one page; if its token is too old, the page at the same place in the present state."""
        try:
            path = path_of(query | ({"continue": token} if token else {}))
            answer = await self.request("GET", path, missing_ok=True, **options)
        except GoneError as gone:
            if not gone.continue_token or gone.continue_token == token:
                raise
            return await self._list(path_of, query, gone.continue_token, **options)
        if answer is None:
            raise AbsentKindError(f"this cluster does not serve {path_of({})}")
        return answer
