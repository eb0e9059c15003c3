"""The floor of a tick of `usage`: the same LISTs, page by page, whose bodies are thrown away.

`python -m tests.benchmarks.usage_floor FOLDER`, with the kubeconfig and the paths that `bench_usage` writes there.
"""

import argparse
import asyncio
import json
import os
import re
import ssl
import time
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import uvloop

LISTS_AT_ONCE = 4
"""As the function lists kinds."""

_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_CONTINUE = re.compile(rb'"continue":"([^"]+)"')
_HEAD_BYTES = 4096
"""The metadata of a list is before its items."""


def peak_mb(pid: int) -> float:
    """The peak of resident memory of a process."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found, "expected VmHWM in /proc/PID/status"
    return int(found[1]) / 1000


async def list_bare(folder: Path) -> dict[str, Any]:
    """Send the LISTs, and throw away what comes."""
    config = json.loads((folder / "kubeconfig").read_text())
    cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=cluster["certificate-authority"]))
    headers = {"Authorization": f"Bearer {token}"}
    rest, calls = iter(json.loads((folder / "lists.json").read_text())), 0

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal calls
        for path in rest:
            token = ""
            while True:
                accept = _TABLE if "includeObject" in path else "application/json"
                url = path + (f"&continue={quote(token)}" if token else "")
                async with session.get(url, headers={"Accept": accept}) as response:
                    body, is_packed = await response.read(), "Content-Encoding" in response.headers
                calls += 1
                head = zlib.decompressobj(31).decompress(body, _HEAD_BYTES) if is_packed else body[:_HEAD_BYTES]
                found = _CONTINUE.search(head)
                token = found[1].decode() if found else ""
                if not token:
                    break

    started, cpu = time.monotonic(), time.process_time()
    async with aiohttp.ClientSession(
        cluster["server"], connector=connector, headers=headers, auto_decompress=False
    ) as session:
        await asyncio.gather(*(work(session) for _ in range(LISTS_AT_ONCE)))
    return {
        "seconds": time.monotonic() - started,
        "cpu": time.process_time() - cpu,
        "calls": calls,
        "peak": peak_mb(os.getpid()),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    print(json.dumps(uvloop.run(list_bare(parser.parse_args().folder))))
