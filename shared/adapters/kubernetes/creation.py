"""Create objects of any kind, as discovery says that the API server serves it: for `archive restore` and `diff`."""

from typing import Any
from urllib.parse import quote

from shared.adapters.kubernetes.requests import ApiServer
from shared.core.values.objects import ObjectRef, get_text, list_mappings
from shared.core.values.objects import quote as excerpt
from shared.errors import AbsentKindError, PermanentError, TryLaterError
from shared.ports import Snapshot
from shared.usecases.restore import ServedKind

FIELD_MANAGER = "ttl-after-finished"
"""The manager of the fields of a restored object."""


class ObjectCreation:
    """Creates objects: implements `shared.usecases.restore.Creator`.

    Args:
        server: The API server.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._lists: dict[str, list[dict[str, Any]]] = {}

    async def find_kind(self, api_version: str, kind: str) -> ServedKind:
        """See `shared.usecases.restore.Creator`; the discovery of each group version is read once."""
        if api_version not in self._lists:
            answer = await self._server.request("GET", _root(api_version), missing_ok=True)
            self._lists[api_version] = [dict(one) for one in list_mappings(answer and answer.body, "resources")]
        names = {get_text(one, "name"): one for one in self._lists[api_version]}
        for name, one in names.items():
            if one.get("kind") == kind and "/" not in name:
                return ServedKind(api_version, name, one.get("namespaced") is True, f"{name}/status" in names)
        raise AbsentKindError(f"the API server does not serve {kind} of {api_version}")

    async def read(self, kind: ServedKind, ref: ObjectRef) -> Snapshot | None:
        """See `shared.usecases.restore.Creator`."""
        answer = await self._server.request("GET", f"{_collection(kind, ref)}/{_part(ref.name)}", missing_ok=True)
        return None if answer is None else Snapshot(answer.body, answer.read_at, answer.ahead)

    async def create(self, kind: ServedKind, obj: dict[str, Any], *, dry_run: bool) -> Snapshot:
        """See `shared.usecases.restore.Creator`."""
        ref = ObjectRef(kind.api_version, "", get_text(obj, "metadata.namespace"), get_text(obj, "metadata.name"), "")
        query = f"fieldManager={FIELD_MANAGER}{'&dryRun=All' if dry_run else ''}"
        answer = await self._server.request("POST", f"{_collection(kind, ref)}?{query}", body=obj)
        if answer is None:
            raise TryLaterError("expected the created object from the API server, got none")
        return Snapshot(answer.body, answer.read_at, answer.ahead)


def _root(api_version: str) -> str:
    root = "apis" if "/" in api_version else "api"
    return f"/{root}/{'/'.join(_part(part) for part in api_version.split('/'))}"


def _collection(kind: ServedKind, ref: ObjectRef) -> str:
    place = f"/namespaces/{_part(ref.namespace)}" if kind.is_namespaced else ""
    return f"{_root(kind.api_version)}{place}/{kind.plural}"


def _part(text: str) -> str:
    """Quote a part of a path, so that it cannot reach another path.

    Raises:
        PermanentError: It cannot be a part of a path: no object has such a name.
    """
    if text in ("", ".", ".."):
        raise PermanentError(f"expected a name that an object can have, got {excerpt(text)}")
    return quote(text, safe="")
