"""What the limits of `http_limits` cost, beside uvicorn's two protocols: `python -m tests.benchmarks.front`.

Three processes of the function `schedule`, one a protocol, take turns in short slices of the load of `make bench`; the
median slice counts, by the server's own CPU time. Then each gets HEADER_MIB of headers that have no end. No other
server is needed; it takes about a minute.
"""

import asyncio
import contextlib
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from tests.benchmarks.schedule import FUNCTION, SLICES, Server, Slice, load, served
from tests.builders import FRONT
from tests.proc import memory_kb

PROTOCOLS = {"httptools": "httptools", "h11": "h11", "ours": FRONT}
HEADER_MIB = 60
SENDERS = 4


def memory_mib(server: Server) -> float:
    """Resident at the most so far."""
    return memory_kb(server.pid, "VmHWM") / 1024


async def bomb(server: Server) -> float:
    """By how many MiB the process grows."""
    before = memory_mib(server)

    async def send() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with contextlib.suppress(ConnectionError):
            writer.write(b"POST / HTTP/1.1\r\n")
            for _ in range(HEADER_MIB * 4 // SENDERS):
                writer.write(b"a: b\r\n" * (256 * 1024 // 6))
                await writer.drain()
            await asyncio.sleep(0.5)
        writer.close()

    await asyncio.gather(*(send() for _ in range(SENDERS)))
    return memory_mib(server) - before


async def main() -> None:
    slices: dict[str, list[Slice]] = {name: [] for name in PROTOCOLS}
    target = ("env", "FUNCTION_TARGET=schedule", f"FUNCTION_SOURCE={FUNCTION}")
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            servers = {
                name: await stack.enter_async_context(
                    served(Path(folder), "functions_framework.aio:app", *target, http=http)
                )
                for name, http in PROTOCOLS.items()
            }
            for _ in range(SLICES):
                for name, server in servers.items():
                    slices[name].append(await load(server, "--replies"))
            grown = {name: await bomb(server) for name, server in servers.items()}
    base = median(one.per_cpu_second for one in slices["httptools"])
    print(f"{'':10} {'a second':>9} {'a CPU second':>13} {'of httptools':>13} {f'{HEADER_MIB} MiB of headers':>24}")
    for name, taken in slices.items():
        rate = median(one.per_cpu_second for one in taken)
        wall = median(one.per_second for one in taken)
        print(f"{name:10} {wall:9,.0f} {rate:13,.0f} {rate / base:13.0%} {f'+{grown[name]:,.0f} MiB':>24}")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
