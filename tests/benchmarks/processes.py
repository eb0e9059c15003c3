"""Contenders as processes of their own, as a user would run them."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

READY_SECONDS = 30
STOP_SECONDS = 30
PROGRAM = str(Path(sys.executable).with_name("ttl-after-finished"))


class Contender:
    """A process that was started here.

    A driver prints `ready` when it is connected and has imported all. It answers each command with `done`.
    """

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        async with asyncio.timeout(READY_SECONDS):
            await self._expect(b"ready\n")

    def send(self, command: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{command}\n".encode())

    async def done(self, seconds: float) -> None:
        """Wait until a command is carried out."""
        async with asyncio.timeout(seconds):
            await self._expect(b"done\n")

    async def _expect(self, expected: bytes) -> None:
        assert self._process.stdout
        line = await self._process.stdout.readline()
        if line != expected:
            raise RuntimeError(
                f"{self._log.name}: expected {expected!r}, got {line!r}: {self._log.read_text()[-2000:]}"
            )

    async def output(self) -> bytes:
        """The rest of what it prints."""
        assert self._process.stdout
        return await self._process.stdout.read()

    async def stop(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()  # else a thread that reads the next command keeps the process alive
        if self._process.returncode is None:
            self._process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def cpu_seconds(pid: int) -> float:
    """The processor time a process took so far; not a number where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def running(command: Sequence[str], log: Path) -> AsyncIterator[Contender]:
    """The process, until the block ends; what it says on standard error is in the log."""
    with log.open("ab") as stream:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=stream
        )
    contender = Contender(process, log)
    try:
        yield contender
    finally:
        await contender.stop()
