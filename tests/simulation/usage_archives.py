"""The archive in a world of unused objects, slow and now and then away: ConfigMaps are stored before they go."""

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from shared.adapters.config.policy_file import parse_policy
from shared.core.policy.policy import Policy
from shared.core.policy.usage import CONFIG_MAPS
from shared.errors import TryLaterError
from shared.evaluation.archive_check import ArchiveCheck
from shared.evaluation.children import Children
from shared.evaluation.pod_logs import PodLogs
from shared.usecases.archives.writer import ArchiveWriter
from shared.usecases.usage.handler import UsageArchive
from tests.archives import FakeArchive, FakeArchives, copied_of
from tests.builders import shipped_kinds

if TYPE_CHECKING:
    from tests.simulation.usage_world import UsageWorld

GRACE = timedelta(minutes=30)
SLOW_SECONDS = 40.0
"""The longest answer: beyond what `usage` waits for."""


def archiving_policy() -> Policy:
    """ConfigMaps are stored, and kept for the grace; Secrets are not stored."""
    rules = [
        {"name": "stored", "match": {"kinds": ["configmaps"]}, "archive": {"to": "main", "grace": "30m"}},
        {"name": "rotated", "match": {"kinds": ["secrets"]}},
    ]
    archives = {"main": {"url": "file:///archive"}}
    document = {"archives": archives, "rules": [one | {"unused": {"ttl": "1h"}} for one in rules]}
    return parse_policy(json.dumps(document), shipped_kinds(), name="policy.yaml")


class UsageSimArchive:
    """The archive of one world; it outlives the processes."""

    def __init__(self, world: "UsageWorld") -> None:
        self.world = world
        self.proofs: dict[str, Any] = {}
        self.store = FakeArchive(now=world.now, before=self._before)

    def open(self, cluster: Any, telemetry: Any) -> UsageArchive:
        """The access of one process."""
        archives = FakeArchives({"main": self.store})
        writer = ArchiveWriter(archives, cast("Children", None), cast("PodLogs", None))
        return UsageArchive(cluster, writer, ArchiveCheck(archives), telemetry)

    def find_problem(self, live: dict[str, Any]) -> str:
        """Why this version of an object may not be deleted yet; empty if it may."""
        if not self.store.holds(live, CONFIG_MAPS):
            return f"version {live['metadata']['resourceVersion']} is not stored"
        _, stored_at = self.store.documents[copied_of(live, CONFIG_MAPS).key.path]
        return "its grace is not over" if self.world.now() < stored_at + GRACE else ""

    async def _before(self, call: str) -> None:
        world = self.world
        slow = world.happens(0.05)
        await asyncio.sleep(world.rng.uniform(0.001, SLOW_SECONDS if slow else 0.05))
        if world.happens(0.2):
            world.note(f"the archive refuses to {call}")
            raise TryLaterError("the archive is away")
