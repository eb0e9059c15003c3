"""Leader election among the runners of a cluster, with a coordination.k8s.io Lease.

Two leaders would be safe, because each DELETE carries preconditions, but all work would be done twice. The election of
the client library does not release its Lease at the end, and does not distinguish a missing right from a busy server.
So this module implements the same rules with plain API requests.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.core.values.objects import format_instant, get_in, get_text
from shared.core.values.scope import Scope
from shared.errors import ConflictError, TryLaterError, TtlError
from shared.ports import Clock

LEASE_DURATION_SECONDS = 15
LEASE_RENEW_SECONDS = 5.0


class LeadershipLostError(TtlError):
    """The Lease could not be renewed in time, or another process holds it."""


class Lease:
    """The Lease of one candidate.

    Args:
        cluster: The cluster of the Lease.
        namespace: The namespace of the Lease; it must exist.
        name: The name of the Lease, the same for all candidates.
        identity: The identity of this candidate.
        clock: The clock for the times in the Lease; whether a Lease has expired is measured in monotonic time.
        scope: Returns what this candidate handles, for the annotations; called at each renewal, as a policy may change.
    """

    def __init__(  # noqa: PLR0913 - each argument is a part of the Lease
        self,
        cluster: KubernetesCluster,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        scope: Callable[[], Scope],
    ) -> None:
        self._cluster, self._scope = cluster, scope
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name, self._identity, self._clock = name, identity, clock
        self._seen: tuple[str, float] = ("", 0.0)
        self._holder = ""

    @asynccontextmanager
    async def held(self, on_wait: Callable[[str], None]) -> AsyncIterator[None]:
        """Wait until this candidate leads, renew the Lease until the block ends, and release it.

        Args:
            on_wait: Called with the reason to wait, each time that it changes.

        Raises:
            ForbiddenError: A right on Leases is missing.
            LeadershipLostError: In the block, if another process took over or a renewal failed for too long.
        """
        await self._acquire(on_wait)
        owner = asyncio.current_task()
        renewal = asyncio.create_task(self._renew())
        lost: list[str] = []

        def on_end(task: asyncio.Task[str]) -> None:
            if not task.cancelled() and owner:
                lost.append(str(task.exception() or task.result()))
                owner.cancel()

        renewal.add_done_callback(on_end)
        try:
            yield
        except asyncio.CancelledError:
            if lost and owner:
                owner.uncancel()  # the cancellation came from `on_end`
                raise LeadershipLostError(lost[0]) from None
            raise
        finally:
            renewal.remove_done_callback(on_end)
            renewal.cancel()
            await self._release()

    async def _acquire(self, on_wait: Callable[[str], None]) -> None:
        reported = ""
        while True:
            try:
                if await self._try():
                    return
                reason = f"{self._holder} leads"
            except TryLaterError as error:
                reason = str(error)
            if reason != reported:
                reported = reason
                on_wait(reason)
            await asyncio.sleep(LEASE_RENEW_SECONDS / 2)

    async def _renew(self) -> str:
        """Renew the Lease until that fails for too long; return the reason."""
        renewed_at = time.monotonic()
        reason = ""
        while time.monotonic() - renewed_at < LEASE_DURATION_SECONDS - LEASE_RENEW_SECONDS:
            await asyncio.sleep(LEASE_RENEW_SECONDS if time.monotonic() - renewed_at < LEASE_RENEW_SECONDS else 1.0)
            try:
                if not await self._try():
                    return f"{self._holder} leads now"
            except TryLaterError as error:
                reason = str(error)
                continue
            renewed_at = time.monotonic()
        return f"the Lease could not be renewed in time: {reason}"

    async def _try(self) -> bool:
        """Acquire or renew the Lease; return False while another process holds it."""
        answer = await self._cluster.request("GET", f"{self._collection}/{self._name}", missing_ok=True)
        lease = answer.body if answer else {"metadata": {"name": self._name}, "spec": {}}
        self._holder = get_text(lease, "spec.holderIdentity")
        if self._holder not in ("", self._identity) and not self._ran_out(lease):
            return False
        try:
            await self._write(lease, self._identity, new=answer is None)
        except ConflictError:
            return False
        return True

    def _ran_out(self, lease: Any) -> bool:
        """Whether the Lease has expired: this process has seen no renewal for its duration. No clocks are compared."""
        version = get_text(lease, "metadata.resourceVersion")
        if version != self._seen[0]:
            self._seen = (version, time.monotonic())
        duration = get_in(lease, "spec.leaseDurationSeconds")
        seconds = duration if isinstance(duration, int) else LEASE_DURATION_SECONDS
        return time.monotonic() - self._seen[1] > seconds

    async def _write(self, lease: Any, holder: str, *, new: bool) -> None:
        now = format_instant(self._clock.now().replace(microsecond=1))  # MicroTime needs six digits
        spec = {**lease.get("spec", {}), "holderIdentity": holder, "renewTime": now}
        if holder and get_text(lease, "spec.holderIdentity") != holder:
            transitions = get_in(lease, "spec.leaseTransitions") or 0
            spec |= {"acquireTime": now, "leaseTransitions": transitions if new else transitions + 1}
        spec["leaseDurationSeconds"] = LEASE_DURATION_SECONDS
        metadata = lease.get("metadata", {})
        if holder:
            existing = metadata.get("annotations") or {}
            metadata = {**metadata, "annotations": {**existing, **self._scope().as_annotations(holder)}}
        body = {**lease, "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        path = self._collection if new else f"{self._collection}/{self._name}"
        await self._cluster.request("POST" if new else "PUT", path, body=body)

    async def _release(self) -> None:
        """Release the Lease if possible; otherwise the next candidate waits until the Lease expires."""
        try:
            async with asyncio.timeout(2):
                answer = await self._cluster.request("GET", f"{self._collection}/{self._name}", missing_ok=True)
                if answer and get_text(answer.body, "spec.holderIdentity") == self._identity:
                    await self._write(answer.body, "", new=False)
        except (TimeoutError, TtlError):
            return
