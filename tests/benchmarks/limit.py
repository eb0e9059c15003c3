"""The bare client: `python -m tests.benchmarks.limit`, nothing but the calls that deleting takes.

DELETE with uid and resourceVersion as preconditions, Background, options in the body; 64 connections of aiohttp on
uvloop. It knows each name, uid and resourceVersion before the clock starts, so it is a limit that a client which has
to find the objects cannot reach. `--list` finds them by a LIST after the clock has started. `--at-due` is the floor of
lateness: it also knows when each Job is due, and sends each DELETE at that instant by this machine's clock. No
decision, no timer, no log.

It answers each line on standard input: `prepare` opens the connections and reads the set, `go` deletes the set.
"""

import argparse
import asyncio
import json
import ssl
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from shared.core.values.objects import parse_instant
from tests.benchmarks.cluster import JOBS, now

CONNECTIONS = 64
KEEPALIVE_SECONDS = 75
PREFIX = "set-"


class BareClient:
    """Deletes sets of Jobs.

    Args:
        session: Connected to the API server.
        is_reading: Whether it reads each object before it is deleted.
    """

    def __init__(self, session: aiohttp.ClientSession, *, is_reading: bool = False) -> None:
        self._session = session
        self._is_reading = is_reading
        self._items: list[dict[str, Any]] = []
        self._work: list[tuple[str, bytes]] = []

    async def connect(self) -> None:
        """Open all connections."""
        await asyncio.gather(*(self._get("/version") for _ in range(CONNECTIONS)))

    async def find(self) -> None:
        """Read the set that is there."""
        listed = await self._get(JOBS)
        self._items = [one for one in listed["items"] if one["metadata"]["name"].startswith(PREFIX)]
        self._work = [work_of(one) for one in self._items]

    async def delete(self) -> None:
        """Delete the set."""
        await self._delete_all(iter(self._work))

    async def delete_at_due(self) -> None:
        """Delete each object of the set when it is due."""
        due: defaultdict[datetime, list[tuple[str, bytes]]] = defaultdict(list)
        for one, work in zip(self._items, self._work, strict=True):
            due[due_at(one)].append(work)
        async with asyncio.TaskGroup() as group:
            for at, works in sorted(due.items()):
                while (left := (at - now()).total_seconds()) > 0:
                    await asyncio.sleep(left)
                group.create_task(self._delete_all(iter(works)))

    async def _delete_all(self, rest: Iterator[tuple[str, bytes]]) -> None:
        await asyncio.gather(*(self._delete_some(rest) for _ in range(CONNECTIONS)))

    async def _delete_some(self, rest: Iterable[tuple[str, bytes]]) -> None:
        for path, known in rest:
            body = work_of(await self._get(path))[1] if self._is_reading else known
            async with self._session.delete(path, data=body) as response:
                await response.read()
                assert response.status == 200, (path, response.status)

    async def _get(self, path: str) -> Any:
        async with self._session.get(path) as response:
            return json.loads(await response.read())


def work_of(obj: dict[str, Any]) -> tuple[str, bytes]:
    """The path and the body of a DELETE."""
    metadata = obj["metadata"]
    preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
    return f"{JOBS}/{metadata['name']}", json.dumps({**options, "propagationPolicy": "Background"}).encode()


def due_at(obj: dict[str, Any]) -> datetime:
    """When a finished Job is due."""
    return parse_instant(obj["status"]["completionTime"]) + timedelta(seconds=obj["spec"]["ttlSecondsAfterFinished"])


async def main(config: dict[str, Any], options: argparse.Namespace) -> None:
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=KEEPALIVE_SECONDS, ssl=trust)
    headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(cluster["server"], connector=connector, headers=headers) as session:
        client = BareClient(session, is_reading=options.get)
        print("ready", flush=True)
        while command := await asyncio.to_thread(sys.stdin.readline):
            if command == "prepare\n":
                await client.connect()
            if command == ("go\n" if options.list else "prepare\n"):
                await client.find()
            if command == "go\n":
                await (client.delete_at_due() if options.at_due else client.delete())
            print("done", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kubeconfig", type=Path, help="as the real server's: JSON, with a token")
    parser.add_argument("--get", action="store_true", help="read each object before it is deleted")
    parser.add_argument("--list", action="store_true", help="list the objects after the clock has started")
    parser.add_argument("--at-due", action="store_true", help="delete each Job when it is due")
    given = parser.parse_args()
    uvloop.run(main(json.loads(given.kubeconfig.read_text()), given))
