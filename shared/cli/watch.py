"""`watch`: send an event for each object that may be due to a Broker; on Knative this is a ContainerSource."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import click

from shared.adapters.config.settings import read_settings
from shared.adapters.events.retrying import retrying
from shared.adapters.telemetry.logs import configure_logging
from shared.bootstrap.config import read_config
from shared.bootstrap.process import build
from shared.bootstrap.publishing import build_publisher
from shared.cli.options.click_options import all_namespaces_option, cluster_options, kinds_dir_option, kinds_option
from shared.cli.options.scope import command, named_by_option
from shared.cli.options.target import is_absent
from shared.cli.output.messages import inform
from shared.cli.process.asynchronous import asynchronous
from shared.cli.process.connection import connected, name_served
from shared.source.watches import KindWatches

SWEEP_SECONDS_MAX = 900.0
"""The longest wait for a sweep: an in-memory channel answers after all pages, and stops if the client disconnects."""


@command()
@all_namespaces_option
@kinds_option
@kinds_dir_option
@click.option("--sink", metavar="URL", help="The Broker that receives the events. Default: $K_SINK.")
@cluster_options
@asynchronous
async def watch(
    namespace: str,
    kinds: str,
    kinds_dir: Path | None,
    sink: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Send a CloudEvent for each changed object that may be due to a Broker, until Ctrl-C. Deletes nothing."""
    given = {
        "TTL_KINDS": ("--kinds", kinds),
        "TTL_KINDS_DIR": ("--kinds-dir", str(kinds_dir or "")),
        "K_SINK": ("--sink", sink),
    }
    with named_by_option(given) as values:
        settings = read_settings(values)
        files = read_config(settings, namespace=namespace)
    configure_logging(settings.log or "text")
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(connected(kubeconfig, context))
        config = replace(files, cluster=cluster)
        process = build(config)
        stack.callback(process.serve_metrics())
        events = build_publisher(settings, process.cluster)
        sweeps = build_publisher(settings, process.cluster, seconds_max=SWEEP_SECONDS_MAX)
        stack.push_async_callback(events.close)
        stack.push_async_callback(sweeps.close)
        await cluster.check()
        if namespace and await is_absent(namespace, cluster):
            inform(f"warning: namespace {namespace} does not exist; no event is sent until it is created")
        plurals = await name_served(config, cluster)
        inform(f"watching {plurals} of {cluster.server}, sending events to {settings.sink}")
        watches = KindWatches(
            config, cluster, await process.evaluator(), send=retrying(events.send), publish=retrying(sweeps.publish)
        )
        try:
            raise await watches.run()
        except asyncio.CancelledError:  # Ctrl-C or SIGTERM: the next sweep finds the objects of unsent events
            inform("stopped")
