"""Watch all enabled kinds that the API server serves; a failed or forbidden watch does not affect the others."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.bootstrap.config import ProcessConfig
from shared.bootstrap.proofs import build_proofs
from shared.core.kinds.rule import KindRule
from shared.errors import ForbiddenError, TtlError
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.namespaces_and_owners import list_served
from shared.source.watch import KindWatch, Publish, Send

SERVED_POLL_SECONDS = 30.0
"""The interval between two reads of discovery, for all kinds together."""

RESTART_SECONDS = 10.0
"""The pause before the restart of a watch that an unexpected exception ended."""

REFUSED_SECONDS = 10.0
REFUSED_SECONDS_MAX = 600.0
"""The first and the longest pause before the next attempt to watch a forbidden kind: roles aggregate with a delay."""

_log = logging.getLogger("ttl")


@dataclass(frozen=True, slots=True)
class _Running:
    watch: KindWatch
    task: asyncio.Task[None]


class KindWatches:
    """The watches on all enabled kinds that a cluster serves.

    A watch starts when the kind's CRD appears, and ends when the CRD is removed.

    Args:
        config: The configuration of this process, with the enabled kinds.
        cluster: The cluster to watch; the same as that of `config`, if `config` has one.
        evaluator: The evaluator of this process.
        send: Sends an event.
        publish: Publishes the SweepStep that starts a sweep.
    """

    def __init__(
        self, config: ProcessConfig, cluster: KubernetesCluster, evaluator: Evaluator, *, send: Send, publish: Publish
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._evaluator = evaluator
        self._send = send
        self._publish = publish
        self._proofs = build_proofs(config, evaluator, cluster) if config.settings.proof_key else None
        self._running: list[_Running] = []
        self._names: set[str] | None = None
        self._refusals: dict[int, ForbiddenError] = {}  # by watch: kinds of two groups may have the same plural
        self._all_forbidden = asyncio.Event()

    async def run(self) -> ForbiddenError:
        """Watch until cancelled.

        Returns:
            The error, once every watch is forbidden.
        """
        async with asyncio.TaskGroup() as group:
            poll = group.create_task(self._poll_served(group))
            await self._all_forbidden.wait()
            refusal = next(iter(self._refusals.values()))
            poll.cancel()
            for one in self._running:
                one.task.cancel()
        return refusal

    async def _poll_served(self, group: asyncio.TaskGroup) -> None:
        """Read regularly which kinds are served; after an error, retry sooner."""
        failures = 0
        while True:
            try:
                self._update_watches(await self._list_served(), group)
                failures = 0
            except TtlError as error:
                failures += 1
                if failures == 1:
                    self._config.telemetry.problem("could not read which kinds are served", error=str(error))
            await asyncio.sleep(min(2.0**failures, SERVED_POLL_SECONDS) if failures else SERVED_POLL_SECONDS)

    async def _list_served(self) -> Sequence[KindRule]:
        return await list_served(self._config.catalogue, cluster=self._cluster, namespace=self._config.namespace)

    def _update_watches(self, served: Sequence[KindRule], group: asyncio.TaskGroup) -> None:
        """End the watches on kinds that are no longer served under the same rule; start those on the other kinds."""
        self._log_changes({rule.name for rule in served})
        for one in [one for one in self._running if one.watch.rule not in served]:
            one.task.cancel()
            self._running.remove(one)
        watched = [one.watch.rule for one in self._running]
        for watch in map(self._watch_of, (rule for rule in served if rule not in watched)):
            self._running.append(_Running(watch, group.create_task(self._keep_watching(watch))))

    def _log_changes(self, names: set[str]) -> None:
        """Log each kind that is newly served or no longer served; the caller logs the kinds at the start."""
        before = names if self._names is None else self._names
        for message, kinds in (("kind is now served", names - before), ("kind is no longer served", before - names)):
            for kind in sorted(kinds):
                _log.info(message, extra={"fields": {"kind": kind}})
        self._names = names

    def _watch_of(self, rule: KindRule) -> KindWatch:
        return KindWatch(
            self._cluster,
            rule,
            send=self._send,
            publish=self._publish,
            clock=self._config.clock,
            telemetry=self._config.telemetry,
            evaluator=self._evaluator,
            namespace=self._config.namespace,
            proofs=self._proofs,
        )

    async def _keep_watching(self, watch: KindWatch) -> None:
        """Run a watch, and restart it after each end."""
        pause = REFUSED_SECONDS
        try:
            while True:
                try:
                    await watch.run()
                except ForbiddenError as error:
                    self._refuse(watch, error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, REFUSED_SECONDS_MAX)
                    self._refusals.pop(id(watch))
                except Exception:  # noqa: BLE001 - an error of one watch must not end the others
                    _log.exception("watch failed and restarts", extra={"fields": {"kind": watch.rule.name}})
                    await asyncio.sleep(RESTART_SECONDS)
        finally:
            self._refusals.pop(id(watch), None)

    def _refuse(self, watch: KindWatch, error: ForbiddenError) -> None:
        self._config.telemetry.problem("kind not watched: a right is missing", kind=watch.rule.name, error=str(error))
        self._refusals[id(watch)] = error
        if len(self._refusals) == len(self._running):
            self._all_forbidden.set()
