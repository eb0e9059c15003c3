"""`watch`: tell a Broker what may have to be deleted; on Knative a ContainerSource."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import click

from shared.adapters.config.settings import read_settings
from shared.adapters.events.retrying import retrying
from shared.adapters.telemetry.logs import configure_logging
from shared.bootstrap.publishing import http_publisher
from shared.bootstrap.world import build
from shared.cli import options
from shared.cli.scope_options import command, named_by_option
from shared.cli.target import is_absent
from shared.source.watches import KindWatches

SWEEP_SECONDS_MAX = 900.0
"""An in-memory channel answers once all pages are swept, for at most so long, and stops where nobody waits for it."""


@command()
@options.all_namespaces_option
@options.kinds_option
@options.kinds_dir_option
@click.option("--sink", metavar="URL", help="The URL of the Broker. Default: $K_SINK.")
@options.cluster_options
@options.asynchronous
async def watch(
    namespace: str,
    kinds: str,
    kinds_dir: Path | None,
    sink: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Send changed objects that may have to be deleted to a Broker, as CloudEvents, until Ctrl-C. Deletes nothing."""
    given = {
        "TTL_KINDS": ("--kinds", kinds),
        "TTL_KINDS_DIR": ("--kinds-dir", str(kinds_dir or "")),
        "K_SINK": ("--sink", sink),
    }
    with named_by_option(given) as values:
        settings = read_settings(values)
        world = build(settings)
    configure_logging(settings.log or "text")
    world.namespace = namespace
    async with AsyncExitStack() as stack:
        stack.callback(world.measure())
        token = world.sink_token()
        events = http_publisher(settings, **token)
        sweeps = http_publisher(settings, seconds_max=SWEEP_SECONDS_MAX, **token)
        stack.push_async_callback(events.close)
        stack.push_async_callback(sweeps.close)
        cluster = world.cluster = await stack.enter_async_context(options.connected(kubeconfig, context))
        await cluster.check()
        if namespace and await is_absent(namespace, cluster):
            options.say(f"warning: namespace {namespace} does not exist; no event is sent until it is created")
        plurals = await options.name_served(world, cluster)
        options.say(f"watching {plurals} of {cluster.server}, telling {settings.sink}")
        watches = KindWatches(
            world, cluster, await world.evaluator(), send=retrying(events.send), publish=retrying(sweeps.publish)
        )
        try:
            raise await watches.run()
        except asyncio.CancelledError:  # Ctrl-C, or SIGTERM: what was not told is found by the sweep at the next start
            options.say("stopped")
