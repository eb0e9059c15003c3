"""Read the logs of the containers of a Pod, for an archive.

What can never be read is reported as a gap, and stops nothing: the container is gone, for example. Any other refusal is
an error, because an operator can grant a missing right or renew a certificate.

The API server reads a log by the name of its Pod. So after each log the Pod is read: if the name is that of another Pod
by then, such as the next one of a StatefulSet, the log is left out. Until then it must not be published.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.values.objects import get_in, get_text, list_mappings, ref_of
from shared.errors import ForbiddenError, MissingLogError, PermanentError, UnreachableLogError
from shared.ports import Cluster

LOG_BYTES_MAX = 10 * 1024 * 1024
"""Default for the bytes of the log of one container; the rest of a longer log is left out."""

_POD = KindRule(api_versions=("v1",), kind="Pod", plural="pods", never_finishes="only its logs are read")
_PARTS = ("initContainer", "container", "ephemeralContainer")
_STATES = ("state", "lastState")


class LogGap(StrEnum):
    """What is missing of a log, or why all of it is missing."""

    CUT = "cut"
    NOT_STARTED = "not-started"
    GONE = "gone"
    UNREACHABLE = "unreachable"
    BROKEN_OFF = "broken-off"
    KEPT = "kept"


@dataclass(slots=True)
class ContainerLog:
    """The log of one container.

    Attributes:
        container: The name of the container.
        gap: What is missing; None for a whole log. CUT and BROKEN_OFF are known after the last chunk.
        problem: The gap in words.
        size: The bytes that were read.
        is_missing: Whether there is nothing to store.
    """

    container: str
    gap: LogGap | None = None
    problem: str = ""
    size: int = 0
    is_missing: bool = False
    _chunks: AsyncGenerator[bytes] | None = field(default=None, repr=False)

    @property
    def may_come(self) -> bool:
        """Whether the log, or the rest of it, may be read later while the Pod exists."""
        return self.gap in (LogGap.UNREACHABLE, LogGap.BROKEN_OFF)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the log; nothing if it is missing. It can be read once.

        Raises:
            TryLaterError: The API server is away.
            MissingLogError: After the last chunk: the chunks are not known to be those of this Pod. Do not store them.
        """
        if self._chunks is not None:
            async for chunk in self._chunks:
                yield chunk

    def lacks(self, gap: LogGap, problem: str) -> None:
        """Note what is missing."""
        self.gap, self.problem = gap, problem
        self.is_missing = self.size == 0 and gap is not LogGap.CUT

    def discard(self, gap: LogGap, problem: str) -> None:
        """Note that nothing of what was read can be stored.

        Raises:
            MissingLogError: Some of it was yielded.
        """
        is_yielded, self.size = self.size > 0, 0
        self.lacks(gap, problem)
        if is_yielded:
            raise MissingLogError(problem)


@dataclass(frozen=True, slots=True)
class PodLogs:
    """Reads the logs of Pods.

    Attributes:
        cluster: The API server.
        bytes_max: Maximum bytes of the log of one container.
    """

    cluster: Cluster
    bytes_max: int = LOG_BYTES_MAX

    async def read(self, pod: dict[str, Any]) -> AsyncGenerator[ContainerLog]:
        """Yield the log of each container of a Pod; read a log before you ask for the next one.

        Args:
            pod: The Pod as it is now. A log is read by the name of its Pod.

        Raises:
            TryLaterError: The API server is busy or away.
            PermanentError: The API server or the kubelet refuses to read the log, or the Pod: a right is missing, for
                example.
        """
        for container in containers_of(pod):
            log = ContainerLog(container)
            if not _has_started(pod, container):
                log.lacks(LogGap.NOT_STARTED, f"container {container} has not started")
                yield log
                continue
            async with aclosing(self._follow(log, pod)) as chunks:
                first = await anext(chunks, b"")
                log._chunks = _joined(first, chunks)  # noqa: SLF001 - only this class makes logs
                yield log

    async def _follow(self, log: ContainerLog, pod: dict[str, Any]) -> AsyncGenerator[bytes]:
        """Yield a log up to its limit, and note what is missing.

        Raises:
            MissingLogError: After the last chunk: they may be those of another Pod.
        """
        stream = self.cluster.logs(ref_of(pod), log.container, bytes_max=self.bytes_max + 1)
        try:
            async with aclosing(stream):
                async for chunk in stream:
                    kept = chunk[: self.bytes_max - log.size]
                    log.size += len(kept)
                    if kept:
                        yield kept
                    if len(kept) < len(chunk):
                        log.lacks(LogGap.CUT, f"the log has more than {self.bytes_max} bytes: the rest is left out")
                        break
        except UnreachableLogError as error:
            log.lacks(LogGap.BROKEN_OFF if log.size else LogGap.UNREACHABLE, str(error))
        except MissingLogError as error:
            log.lacks(LogGap.GONE, str(error))
        except PermanentError as error:
            raise _refusal(error) from None
        if not log.is_missing:
            await self._check_pod(log, pod)

    async def _check_pod(self, log: ContainerLog, pod: dict[str, Any]) -> None:
        """Discard a log unless the name is still that of its Pod: then it was all the time."""
        ref = ref_of(pod)
        try:
            snapshot = await self.cluster.get(_POD, ref)
        except PermanentError as error:
            raise _refusal(error) from None
        if snapshot is None:
            log.discard(LogGap.GONE, f"{ref} was deleted while its log was read")
        elif (uid := get_text(snapshot.obj, "metadata.uid")) != ref.uid:
            log.discard(LogGap.GONE, f"{ref} was replaced by the Pod {uid}, whose log it may be; expected {ref.uid}")


def _refusal(error: PermanentError) -> PermanentError:
    """Return the error with what was expected."""
    expected = "the rights to get pods and pods/log" if isinstance(error, ForbiddenError) else "the log"
    return type(error)(f"{error}; expected {expected}, or logs: false in the policy rule")


def containers_of(pod: dict[str, Any]) -> Iterator[str]:
    """The names of the containers of a Pod: init containers, containers, then ephemeral containers."""
    for part in _PARTS:
        for container in list_mappings(pod, f"spec.{part}s"):
            if name := get_text(container, "name"):
                yield name


def _has_started(pod: dict[str, Any], container: str) -> bool:
    """Return whether a container may have a log; without a status of the container, the kubelet is asked."""
    for part in _PARTS:
        for status in list_mappings(pod, f"status.{part}Statuses"):
            if get_text(status, "name") == container:
                states = (get_in(status, f"{when}.{what}") for when in _STATES for what in ("running", "terminated"))
                return any(state is not None for state in states)
    return True


async def _joined(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    if first:
        yield first
    async for chunk in rest:
        yield chunk
