"""This project's contenders that the command line does not offer: one sweep on command, and `run` without memory.

Both are the product's own code path. The sweep runs in a process like the runner's: SweepStep through the local broker
to the function, and from step to step until everything was seen. It starts no timer engine.
"""

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack

import click

from shared.adapters.config.settings import read_settings
from shared.adapters.events.cloudevents import event_of
from shared.adapters.kubernetes.cluster import Memory
from shared.adapters.telemetry.log_lines import configure_logging
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.bootstrap.start import collect_rarely
from shared.cli import run as command_run
from shared.cli.input.command import Command
from shared.cli.input.options import Options, cluster_options
from shared.cli.input.target import connected
from shared.messages import SweepStep
from shared.standalone.runner import SOURCE, local_broker


@click.group()
def main() -> None:
    """The drivers; `--help` of each says what it does."""


@main.command(cls=Command)
@cluster_options
async def sweep(options: Options) -> None:
    """A sweep of all Jobs at each line `go` on standard input."""
    configure_logging("text")
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ttl-bench-"))
        settings = read_settings({"TTL_TIMERS": f"sqlite:{folder}/timers.db"}, environment={})
        cluster = await stack.enter_async_context(connected(options, memory=Memory()))
        process = build(read_config(settings, cluster=cluster, home_namespace=""))
        broker = await stack.enter_async_context(local_broker(process))
        await cluster.check()
        collect_rarely()
        print("ready", flush=True)
        while command := await asyncio.to_thread(sys.stdin.readline):
            if command == "go\n":
                await broker.send(event_of(SweepStep(kinds=("batch/v1/Job",), sweep_id="bench"), source=SOURCE))
            print("done", flush=True)


main.add_command(command_run.run)


def forget() -> None:
    """From now on `run` remembers nothing that its watch brings, and reads each object before it deletes it."""
    assert vars(command_run)["Memory"] is Memory
    vars(command_run)["Memory"] = lambda: None


if __name__ == "__main__":
    if sys.argv[1:2] == ["forgetful"]:
        del sys.argv[1]
        forget()
    main()
