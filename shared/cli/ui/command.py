"""`ui`: a read-only page in the browser, and the JSON that it shows."""

import asyncio
import json
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import click

from shared.cli.input.command import command
from shared.cli.input.options import (
    Options,
    all_namespaces_option,
    cluster_options,
    duration_option,
    kinds_dir_option,
    kinds_option,
    policy_in_force_option,
)
from shared.cli.input.target import connected
from shared.cli.output.printing import inform
from shared.cli.ui.app import is_loopback
from shared.cli.ui.cluster_view import read_cluster_view
from shared.cli.ui.overview import overview
from shared.cli.ui.serving import CERT_OPTION, KEY_OPTION, ServerCertificate, serve_page
from shared.cli.ui.shown import Asked, show_view

UI_REFRESH_SECONDS_MIN = 5.0
"""The shortest time between two reads: each lists all objects of the kinds."""


@command()
@all_namespaces_option
@kinds_option
@kinds_dir_option
@policy_in_force_option
@cluster_options
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8090, show_default=True, help="The port; 0 for a free one."
)
@click.option(
    "--auth",
    type=click.Choice(["none", "kubernetes"]),
    default="none",
    show_default=True,
    help="none: each reader sees what your kubeconfig may list. kubernetes: each reader sends a bearer token, and sees "
    "what its user may list. An address beyond loopback requires kubernetes.",
)
@click.option(
    CERT_OPTION,
    "tls_cert",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Serve HTTPS with the certificate chain in this PEM file. The file is read again when it changes.",
)
@click.option(
    KEY_OPTION,
    "tls_key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The private key of the certificate, in PEM, without a passphrase.",
)
@click.option(
    "--refresh",
    callback=duration_option,
    metavar="TIME",
    default="30s",
    show_default=True,
    help="The time between two reads, at least 5s. Each read lists all objects of the kinds.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["page", "json"]),
    default="page",
    show_default=True,
    help="page: serve the page until Ctrl-C. json: print its data once, and end.",
)
async def ui(
    options: Options,
    *,
    host: str,
    port: int,
    auth: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    refresh: timedelta,
    output: str,
) -> None:
    """Show deletions, the forecast and the state of the deleters in the browser, until Ctrl-C. Read-only.

    The page is http://127.0.0.1:8090/, and its data is http://127.0.0.1:8090/api/v1/overview. Any user of this machine
    can open it while it is served. With --auth kubernetes, the API server checks each reader by a TokenReview and
    SubjectAccessReviews.

    With -o json, the exit code is 1 if the policy in force is unknown, or another part could not be read.
    """
    if auth == "none" and not is_loopback(host):
        raise click.UsageError(f"--host {host}: an address beyond loopback requires --auth kubernetes")
    seconds = refresh.total_seconds()
    if seconds < UI_REFRESH_SECONDS_MIN:
        raise click.UsageError(f"--refresh: expected at least {UI_REFRESH_SECONDS_MIN:.0f}s")
    certificate = _read_certificate(tls_cert, tls_key)
    async with connected(options, is_server=output != "json") as cluster:
        if output == "json":
            shown = await show_view(await read_cluster_view(cluster, options), Asked(), None)
            click.echo(json.dumps(overview(shown, refresh_seconds=seconds), indent=2))
            if not shown.view.is_complete:
                raise SystemExit(1)
            return
        await cluster.check()
        is_checked = auth == "kubernetes"
        async with serve_page(
            cluster, options, host, port, seconds=seconds, is_checked=is_checked, certificate=certificate
        ) as url:
            inform(f"serving {url}, read-only, for {cluster.server}; Ctrl-C ends it")
            if certificate is None and not is_loopback(host):
                inform(f"note: without {CERT_OPTION}, the tokens of the readers travel unencrypted")
            with suppress(asyncio.CancelledError):  # Ctrl-C, or the end of the Pod
                await asyncio.Event().wait()


def _read_certificate(chain: Path | None, key: Path | None) -> ServerCertificate | None:
    if (chain is None) != (key is None):
        raise click.UsageError(f"{CERT_OPTION} and {KEY_OPTION}: expected both, or none")
    return None if chain is None or key is None else ServerCertificate(chain, key)
