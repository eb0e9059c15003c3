"""What the archive's path to a real S3 server costs: `python -m tests.benchmarks.archive [--objects N --listed N]`.

Archiving makes the canonical JSON, the digest and the compressed document of each object, and stores it by a
conditional put, which asks the bucket for the document afterwards. It is compared with bare puts of bodies of the same
size by the same client to the same server, in turns and in one run. Then the server's folder is filled with documents
directly, and the documents of one namespace are listed, by S3 and as a folder.
"""

import argparse
import asyncio
import copy
import json
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import obstore
import uvloop
from obstore.store import S3Store

from shared.adapters.archive.codec import compress
from shared.adapters.archive.open_archive import open_archive
from shared.core.archive.document import Document, Record, canonical, digest_of
from shared.core.archive.layout import ArchiveKey, prefix_of
from tests.builders import FIXTURES, not_none, read_yaml
from tests.s3_servers import S3Server, find_s3_server, s3_server

WRITERS = 32
TURNS = 4
NAMESPACES = 1_000
DAY = date(2026, 3, 14)
JOB_BYTES = 6_000


def make_template() -> dict[str, Any]:
    """A finished Job of about 6 KB, with managedFields."""
    (job,) = read_yaml(FIXTURES / "job-complete.yaml")
    fields: dict[str, object] = {f"f:field-{number}": {".": {}, "f:value": {}} for number in range(20)}
    entry = {"manager": "kube-controller-manager", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}
    job["metadata"]["managedFields"] = []
    while len(canonical(job)) < JOB_BYTES:
        job["metadata"]["managedFields"].append(entry)
        job["metadata"].setdefault("annotations", {})[f"example.com/{os.urandom(4).hex()}"] = os.urandom(24).hex()
    return job


def make_objects(count: int, run: str) -> Iterator[dict[str, Any]]:
    """Objects that differ as real ones do; each is made when it is archived."""
    template = make_template()
    for number in range(count):
        obj = copy.copy(template)
        uid = f"{os.getpid():08x}-{number:08x}-{random.getrandbits(48):012x}"
        obj["metadata"] = {
            **template["metadata"],
            "name": f"{run}-{number:07}",
            "uid": uid,
            "resourceVersion": str(10**6 + number),
        }
        yield obj


def document_of(obj: dict[str, Any]) -> tuple[ArchiveKey, Document]:
    metadata, text = obj["metadata"], canonical(obj)
    namespace, version = metadata["namespace"], metadata["resourceVersion"]
    key = ArchiveKey(
        "prod", namespace, "batch/v1", "Job", DAY, metadata["name"], metadata["uid"], version, digest_of(text)
    )
    return key, Document(Record(archived_at=datetime.now(UTC), rule="all"), text)


async def rate_of(work: Iterator[Any], call: Callable[[Any], Awaitable[object]]) -> tuple[float, float]:
    """How many calls a second, and the processor time of this process for each, in microseconds."""
    count = 0

    async def writer() -> None:
        nonlocal count
        for one in work:
            await call(one)
            count += 1

    started, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(writer() for _ in range(WRITERS)))
    seconds = time.perf_counter() - started
    return count / seconds, (time.process_time() - used) / count * 1e6


async def measure_puts(server: S3Server, objects: int) -> dict[str, float]:
    url = server.url("measured", "archive")
    archive = open_archive("main", url)
    bare = S3Store(
        "measured", prefix="bare", endpoint=server.endpoint, region="us-east-1", client_options={"allow_http": True}
    )
    size = len(compress(document_of(next(make_objects(1, "size")))[1].to_bytes()))
    bodies = [os.urandom(size) for _ in range(64)]

    async def archive_one(obj: dict[str, Any]) -> None:
        await archive.put(*document_of(obj))

    async def put_one(number: int) -> None:
        await obstore.put_async(bare, f"{os.getpid()}/{number}", bodies[number % len(bodies)], use_multipart=False)

    await rate_of(make_objects(200, "warm"), archive_one)
    rss_start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    share, ours, theirs, cpu = objects // TURNS, list[float](), list[float](), list[float]()
    for turn in range(TURNS):
        theirs.append((await rate_of(iter(range(turn * share, (turn + 1) * share)), put_one))[0])
        rate, used = await rate_of(make_objects(share, f"turn-{turn}"), archive_one)
        ours.append(rate)
        cpu.append(used)
    return {
        "objects": share * TURNS,
        "body_bytes": size,
        "archived_per_s": statistics.median(ours),
        "bare_puts_per_s": statistics.median(theirs),
        "ratio": statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True)),
        "cpu_us_each": statistics.median(cpu),
        "rss_start_mb": rss_start / 1024,
        "rss_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def fill(folder: Path, listed: int) -> None:
    """Write documents as the server stores them, without it."""
    body = compress(document_of(next(make_objects(1, "listed")))[1].to_bytes())
    digest = digest_of(body)
    for number in range(listed):
        namespace = f"team-{number % NAMESPACES:04}"
        name, version = f"job-{number:08}", str(number)
        key = ArchiveKey("prod", namespace, "batch/v1", "Job", DAY, name, f"uid-{number:08}", version, digest)
        path = folder / key.path
        if number < NAMESPACES:
            path.parent.parent.mkdir(parents=True)
        path.parent.mkdir()
        path.write_bytes(body)


async def measure_lists(server: S3Server, listed: int) -> dict[str, float]:
    url = server.url("listed", "archive")
    folder = server.root / "listed" / "archive"
    started = time.perf_counter()
    fill(folder, listed)
    result = {"listed": float(listed), "fill_s": time.perf_counter() - started}
    for name, archive in {"s3": open_archive("main", url), "folder": open_archive("main", f"file://{folder}")}.items():
        seconds = []
        for namespace in ("team-0000", "team-0500", "team-0999"):
            started = time.perf_counter()
            found = sum([len(page) async for page in archive.ls(prefix_of("prod", namespace))])
            seconds.append(time.perf_counter() - started)
            assert found == listed // NAMESPACES, found
        result[f"ls_{name}_s"] = max(seconds)
        started = time.perf_counter()
        assert len([one async for one in archive.folders(prefix_of("prod"))]) == NAMESPACES
        result[f"namespaces_{name}_s"] = time.perf_counter() - started
    result["documents_of_a_namespace"] = listed / NAMESPACES
    return result


def measure(objects: int, listed: int, folder: Path) -> dict[str, float]:
    (folder / "buckets").mkdir()
    with s3_server(not_none(find_s3_server()), folder / "buckets") as server:
        os.environ.update(server.environment)
        result = uvloop.run(measure_puts(server, objects)) if objects else {}
        return result | (uvloop.run(measure_lists(server, listed)) if listed else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000, help="objects to archive; 0 for none")
    parser.add_argument("--listed", type=int, default=1_000_000, help="documents to list one namespace of; 0 for none")
    options = parser.parse_args()
    if find_s3_server() is None:
        raise SystemExit("no versitygw in $KUBEBUILDER_ASSETS or /usr/local/kubebuilder/bin")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        result = measure(options.objects, options.listed, Path(folder))
        for name, value in result.items():
            print(f"{name:26} {value:12,.3f}")
        print(json.dumps(result), flush=True)  # removing a million files takes minutes


if __name__ == "__main__":
    main()
