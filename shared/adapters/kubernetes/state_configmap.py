"""The shared state of an installation in a ConfigMap."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from shared.adapters.kubernetes.requests import ApiServer
from shared.core.values.objects import get_in
from shared.errors import ConflictError
from shared.safeguards.state_schema import NAME, StateContents, parse_state

STATE_WRITES_MAX = 5
"""Maximum number of attempts to write while other processes write too."""

STATE_PAUSE_SECONDS = 0.1
"""Maximum pause after the first conflict; it doubles after each. Random pauses let concurrent writers get through."""


class ConfigMapState:
    """`shared.ports.State` in the ConfigMap `ttl-after-finished-state`.

    The manifests create it without data, so that applying them again removes no data. If it does not exist, the first
    write creates it.

    Args:
        server: The API server.
        namespace: The namespace of the installation.
    """

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self._collection = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"

    async def read(self) -> Mapping[str, str]:
        """See `shared.ports.State`."""
        return _texts(await self._get())

    async def write(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Mapping[str, str]:
        """See `shared.ports.State`. The precondition of a write is the resourceVersion that was read."""
        for attempt in range(STATE_WRITES_MAX):
            present = await self._get()
            before = _texts(present)
            after = dict(change(before))
            if after == before:
                return after
            try:
                await self._put(present, after)
            except ConflictError:
                await asyncio.sleep(random.uniform(0, STATE_PAUSE_SECONDS * 2**attempt))  # noqa: S311 - no secret
                continue
            return after
        raise ConflictError(f"ConfigMap {NAME}: {STATE_WRITES_MAX} attempts to write conflicted with other writers")

    async def _get(self) -> Any:
        answer = await self._server.request("GET", f"{self._collection}/{NAME}", missing_ok=True)
        return answer.body if answer else None

    async def _put(self, present: Any, data: Mapping[str, str]) -> None:
        body = {**(present or {"metadata": {"name": NAME}}), "apiVersion": "v1", "kind": "ConfigMap", "data": data}
        path = self._collection if present is None else f"{self._collection}/{NAME}"
        await self._server.request("POST" if present is None else "PUT", path, body=body)


async def read_contents(cluster: ApiServer, namespace: str) -> StateContents:
    """Read the shared state of an installation.

    Raises:
        TtlError: The state cannot be read.
    """
    return parse_state(await ConfigMapState(cluster, namespace).read())


def _texts(config_map: Any) -> dict[str, str]:
    data = get_in(config_map, "data")
    return {name: text for name, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}
