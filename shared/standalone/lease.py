"""One leader among the runners of a cluster, by a coordination.k8s.io Lease.

Two leaders would do no harm, each deletion being proven by its preconditions; they would only do everything twice.
The client library has an election of its own, which neither gives its Lease back when it stops nor tells a missing
right from a busy server; these are its rules, in the API's own terms.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.core.objects import format_instant, get_in, get_text
from shared.core.scope import Scope
from shared.errors import ConflictError, TryLaterError, TtlError
from shared.ports import Clock

DURATION_SECONDS = 15
RENEW_SECONDS = 5.0


class LeadershipLostError(TtlError):
    """The Lease could not be renewed in time, or somebody else holds it."""


class Lease:
    """The Lease of one candidate.

    Args:
        cluster: Where it lies.
        namespace: Of the Lease; it must exist.
        name: Of the Lease: all candidates share it.
        identity: This candidate.
        clock: For the times that the Lease shows to people; whether it ran out is told by monotonic time.
        scope: What this candidate handles, for the annotations; asked at each renewal, since a policy is reloaded.
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
        """Wait until this candidate leads, then renew until the block ends, and give the Lease back.

        Args:
            on_wait: Told why it has to wait, when that changes.

        Raises:
            ForbiddenError: A right on Leases is missing.
            LeadershipLostError: In the block, when somebody else took over.
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
                owner.uncancel()  # it was this that cancelled it, and nobody else
                raise LeadershipLostError(lost[0]) from None
            raise
        finally:
            renewal.remove_done_callback(on_end)
            renewal.cancel()
            await self._release()

    async def _acquire(self, on_wait: Callable[[str], None]) -> None:
        told = ""
        while True:
            try:
                if await self._try():
                    return
                reason = f"{self._holder} leads"
            except TryLaterError as error:
                reason = str(error)
            if reason != told:
                told = reason
                on_wait(reason)
            await asyncio.sleep(RENEW_SECONDS / 2)

    async def _renew(self) -> str:
        """Renew until that fails for too long; returns why."""
        renewed_at = time.monotonic()
        reason = ""
        while time.monotonic() - renewed_at < DURATION_SECONDS - RENEW_SECONDS:
            await asyncio.sleep(RENEW_SECONDS if time.monotonic() - renewed_at < RENEW_SECONDS else 1.0)
            try:
                if not await self._try():
                    return f"{self._holder} leads now"
            except TryLaterError as error:
                reason = str(error)
                continue
            renewed_at = time.monotonic()
        return f"the Lease could not be renewed in time: {reason}"

    async def _try(self) -> bool:
        """Take or renew the Lease; False while somebody else holds it."""
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
        """Whether the holder has not renewed for the Lease's duration, as this process saw it: no clocks compared."""
        version = get_text(lease, "metadata.resourceVersion")
        if version != self._seen[0]:
            self._seen = (version, time.monotonic())
        duration = get_in(lease, "spec.leaseDurationSeconds")
        seconds = duration if isinstance(duration, int) else DURATION_SECONDS
        return time.monotonic() - self._seen[1] > seconds

    async def _write(self, lease: Any, holder: str, *, new: bool) -> None:
        now = format_instant(self._clock.now().replace(microsecond=1))  # MicroTime wants six digits
        spec = {**lease.get("spec", {}), "holderIdentity": holder, "renewTime": now}
        if holder and get_text(lease, "spec.holderIdentity") != holder:
            transitions = get_in(lease, "spec.leaseTransitions") or 0
            spec |= {"acquireTime": now, "leaseTransitions": transitions if new else transitions + 1}
        spec["leaseDurationSeconds"] = DURATION_SECONDS
        metadata = lease.get("metadata", {})
        if holder:
            said = metadata.get("annotations") or {}
            metadata = {**metadata, "annotations": {**said, **self._scope().as_annotations(holder)}}
        body = {**lease, "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        path = self._collection if new else f"{self._collection}/{self._name}"
        await self._cluster.request("POST" if new else "PUT", path, body=body)

    async def _release(self) -> None:
        """Best effort: without it the next candidate waits for the duration."""
        try:
            async with asyncio.timeout(2):
                answer = await self._cluster.request("GET", f"{self._collection}/{self._name}", missing_ok=True)
                if answer and get_text(answer.body, "spec.holderIdentity") == self._identity:
                    await self._write(answer.body, "", new=False)
        except (TimeoutError, TtlError):
            return
