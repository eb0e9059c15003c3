"""Events a second of `schedule` at another commit and now, for objects that its features do not concern.

    python -m tests.benchmarks.versions COMMIT

Both serve the same events on one core, in turns in short slices, as `schedule` does. The best slice counts, in events a
second of processor time: other processes on the machine only make a slice worse. One load
is finished Jobs with a TTL, each answered by a timer. The other is running Jobs without any annotation of ours: most
events of a cluster are about such objects, so a new feature must not make them slower.
"""

import argparse
import asyncio
import subprocess
import tarfile
import tempfile
from contextlib import AsyncExitStack
from io import BytesIO
from pathlib import Path

import uvloop

from tests.benchmarks.schedule import Server, Slice, load, served
from tests.builders import ROOT

SLICES = 5
LOADS = {"finished, with a TTL": ("--replies",), "running, without a deadline": ("--running",)}


def export(commit: str, folder: Path) -> Path:
    """Write the tree of a commit into a folder."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def command(tree: Path) -> tuple[str, ...]:
    """What sets the environment of a tree's own `schedule`; `python -m` imports from its working directory first."""
    function = tree / "functions" / "schedule.py"
    return ("env", f"--chdir={tree}", "FUNCTION_TARGET=schedule", f"FUNCTION_SOURCE={function}")


async def measure(commit: str) -> dict[str, dict[str, list[Slice]]]:
    """The slices of each load, before and now."""
    slices: dict[str, dict[str, list[Slice]]] = {name: {"before": [], "now": []} for name in LOADS}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ttl-bench-")))
        before = await asyncio.to_thread(export, commit, folder / "before")
        servers: dict[str, Server] = {}
        for name, tree in (("before", before), ("now", ROOT)):
            home = folder / f"{name}-log"
            home.mkdir()
            servers[name] = await stack.enter_async_context(served(home, "functions_framework.aio:app", *command(tree)))
        for number in range(SLICES):
            for name, options in LOADS.items():
                for when in ("before", "now") if number % 2 == 0 else ("now", "before"):
                    slices[name][when].append(await load(servers[when], *options))
    return slices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="what to compare with: a commit or a tag")
    options = parser.parse_args()
    for name, slices in uvloop.run(measure(options.commit)).items():
        before, now = (max(one.per_cpu_second for one in slices[when]) for when in ("before", "now"))
        print(f"{name}: {before:,.0f} before, {now:,.0f} now, in a second of processor time: x {now / before:.2f}")


if __name__ == "__main__":
    main()
