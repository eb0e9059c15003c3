"""`watch`: send an event for each object that may be due to a Broker; on Knative this is a ContainerSource."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import click

from shared.adapters.config.settings import read_settings
from shared.adapters.events.publisher import retrying
from shared.adapters.telemetry.log_lines import configure_logging
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.bootstrap.process import Once, build_publisher
from shared.bootstrap.start import serve_metrics, start_exports
from shared.cli.input.command import command
from shared.cli.input.options import (
    Options,
    all_namespaces_option,
    cluster_options,
    kinds_dir_option,
    kinds_option,
    named_by_option,
)
from shared.cli.input.target import connected, is_absent, name_served
from shared.cli.output.printing import inform
from shared.source.watches import KindWatches

SWEEP_SECONDS_MAX = 900.0
"""The longest wait for a sweep: an in-memory channel answers after all pages, and stops if the client disconnects."""


@command()
@all_namespaces_option
@kinds_option
@kinds_dir_option
@click.option("--sink", metavar="URL", help="The Broker that receives the events. Default: $K_SINK.")
@cluster_options
async def watch(options: Options, *, sink: str | None) -> None:
    """Send a CloudEvent for each changed object that may be due to a Broker, until Ctrl-C. Deletes nothing."""
    namespace = options.namespace
    with named_by_option({**options.by_variable, "K_SINK": ("--sink", sink)}) as values:
        settings = read_settings(values)
        files = read_config(settings, namespace=namespace)
    configure_logging(settings.log or "text")
    async with AsyncExitStack() as stack:
        connect = Once(lambda: stack.enter_async_context(connected(options, is_server=True)))
        events = build_publisher(settings, connect)  # before it connects: it checks the settings of the sink
        sweeps = build_publisher(settings, connect, seconds_max=SWEEP_SECONDS_MAX)
        stack.push_async_callback(events.close)
        stack.push_async_callback(sweeps.close)
        cluster = await connect()
        config = replace(files, cluster=cluster)
        process = build(config)
        stack.callback(serve_metrics(process))
        stack.push_async_callback(start_exports(process))
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
