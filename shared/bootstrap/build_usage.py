"""Build the use case that deletes unused Secrets and ConfigMaps."""

import asyncio
from typing import TYPE_CHECKING, cast

from shared.evaluation.usage_reader import UsageReader
from shared.usecases.usage.archive import UsageArchive
from shared.usecases.usage.handler import UsageHandler
from shared.usecases.usage.tick import Usage

if TYPE_CHECKING:
    from shared.bootstrap.process import Process
    from shared.ports import UsageCluster


async def build_usage(process: "Process", turn: asyncio.Lock) -> Usage:
    """Make the use case for one tick.

    Args:
        process: Its ports.
        turn: Held by a tick; all ticks of the process share it.
    """
    config, cluster = process.config, await process.cluster()
    handler = UsageHandler(
        cluster=cluster,
        policy=config.policy,
        namespaces=(await process.evaluator()).namespaces,
        clock=config.clock,
        telemetry=config.telemetry,
        interval=config.settings.usage_interval,
        dry_run=config.settings.dry_run,
        safeguards=await process.safeguards(),
        archive=await _build_archive(process),
    )
    return Usage(
        handler=handler,
        reader=UsageReader(cast("UsageCluster", cluster), config.carriers),
        publisher=process.published(),
        concurrency=config.settings.concurrency,
        namespace=config.namespace,
        turn=turn,
    )


async def _build_archive(process: "Process") -> UsageArchive:
    """Make what stores unused objects in the archives of the policy; it connects to none of them yet."""
    cluster, evaluator = await process.cluster(), await process.evaluator()
    writer = await process.archive_writer()
    return UsageArchive(cast("UsageCluster", cluster), writer, evaluator.archive_check, process.config.telemetry)
