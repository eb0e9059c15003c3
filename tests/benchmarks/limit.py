"""The raw limit: `python -m tests.benchmarks.limit`, nothing but the calls that deleting takes.

DELETE with uid and resourceVersion as preconditions, Background, options in the body; 64 connections of aiohttp on
uvloop; from a set that is listed before the clock starts. No decision, no timer, no log.
"""

import argparse
import asyncio
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from tests.benchmarks.cluster import JOBS

CONNECTIONS = 64
PREFIX = "set-"


def options_of(obj: dict[str, Any]) -> bytes:
    metadata = obj["metadata"]
    preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
    return json.dumps({**options, "propagationPolicy": "Background"}).encode()


async def main(config: dict[str, Any], *, get: bool) -> None:
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=trust)
    headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(cluster["server"], connector=connector, headers=headers) as session:
        async with session.get(JOBS) as response:
            items = (await response.json())["items"]
        work = [(f"{JOBS}/{one['metadata']['name']}", options_of(one)) for one in items if is_measured(one)]
        rest = iter(work)

        async def worker() -> None:
            for path, body in rest:
                if get:
                    async with session.get(path) as response:
                        body = options_of(json.loads(await response.read()))  # noqa: PLW2901
                async with session.delete(path, data=body) as response:
                    await response.read()
                    assert response.status == 200, response.status

        print("ready", flush=True)
        sys.stdin.readline()
        await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))


def is_measured(obj: dict[str, Any]) -> bool:
    return obj["metadata"]["name"].startswith(PREFIX)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kubeconfig", type=Path, help="as the real server's: JSON, with a token")
    parser.add_argument("--get", action="store_true", help="read each object before it is deleted")
    options = parser.parse_args()
    uvloop.run(main(json.loads(options.kubeconfig.read_text()), get=options.get))
