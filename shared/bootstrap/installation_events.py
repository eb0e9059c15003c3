"""Write Kubernetes Events about the installation."""

import asyncio
import math
from collections.abc import Awaitable, Callable

from shared.adapters.config.settings import Settings
from shared.core.values.objects import ObjectRef
from shared.ports import Cluster
from shared.ports.cluster import EventLevel

SWEPT_PAUSE_SECONDS = 10.0
"""The pause between two Events of one reason about finished sweeps: otherwise forged `sweep.continue` events
could fill etcd with Events."""


class InstallationEvents:
    """Writes Events about the Namespace of the installation; a dry run writes none.

    Args:
        settings: The settings, with the namespace of the installation.
        connected: Returns the cluster.
    """

    def __init__(self, settings: Settings, connected: Callable[[], Awaitable[Cluster]]) -> None:
        self._settings = settings
        self._connected = connected
        self._swept_at: dict[str, float] = {}

    async def write(self, reason: str, message: str, level: EventLevel = "Warning") -> None:
        """Write an Event in the namespace of the settings; none if they name no namespace."""
        await self.write_in(self._settings.home_namespace, reason, message, level)

    async def write_in(self, namespace: str, reason: str, message: str, level: EventLevel) -> None:
        """Write an Event in a namespace; none if the namespace is empty."""
        if namespace and not self._settings.dry_run:
            await write_event(await self._connected(), namespace, reason, message, level)

    async def write_swept(self, reason: str, message: str, level: EventLevel) -> None:
        """Write an Event about a finished sweep, unless one of the same reason was written just before."""
        now = asyncio.get_running_loop().time()
        if now - self._swept_at.get(reason, -math.inf) >= SWEPT_PAUSE_SECONDS:
            self._swept_at[reason] = now
            await self.write(reason, message, level)


async def write_event(cluster: Cluster, namespace: str, reason: str, message: str, level: EventLevel) -> None:
    """Write an Event about the installation in a namespace."""
    about = ObjectRef(api_version="v1", kind="Namespace", namespace=namespace, name=namespace, uid="")
    await cluster.record_event(about, reason, message, level=level)
