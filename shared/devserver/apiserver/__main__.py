"""Run the embedded API server for kubectl until Ctrl-C: `python -m shared.devserver.apiserver`."""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path

import click

from shared.adapters.clock import SystemClock
from shared.devserver.apiserver.app import EmbeddedApiServer, serve, write_kubeconfig
from shared.devserver.apiserver.store import Store


@click.command()
@click.option("--port", default=0, help="On the loopback; 0 for a free one.")
def main(port: int) -> None:
    """Serve an empty cluster, in memory."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(port))


async def _serve(port: int) -> None:
    with tempfile.TemporaryDirectory(prefix="apiserver-") as folder:
        async with serve(EmbeddedApiServer(Store(SystemClock().now)), port) as url:
            config = write_kubeconfig(Path(folder, "kubeconfig"), url)
            click.echo(f"serving on {url}; try:\n\n  export KUBECONFIG={config}\n  kubectl get namespaces\n")
            await asyncio.Event().wait()


if __name__ == "__main__":
    main()
