"""`doctor`: what is wrong with an installation, and the command that mends it."""

import os
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

import shared
from shared.adapters.clock import SystemClock
from shared.cli import options
from shared.doctor.examine import examine
from shared.doctor.findings import Finding, Level, Place, as_json
from shared.doctor.homes import HOME

MANIFESTS = Path(shared.__file__ or "").parents[1] / "knative"
_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


@click.command()
@click.option("-n", "--namespace", metavar="NAME", help=f"Of the installation. Default: $TTL_NAMESPACE, else {HOME}.")
@click.option("--overlay", default="", metavar="FOLDER", help="What was applied; the commands name it.")
@options.cluster_options
@options.output
@options.asynchronous
async def doctor(namespace: str | None, overlay: str, kubeconfig: str | None, context: str | None, output: str) -> None:
    """Check an installation: a line for each check, and below what is wrong the command that mends it.

    Changes nothing. The exit code is 0 where everything could be checked and is well, else 1.
    """
    place = Place(
        namespace=namespace or options.home_namespace(),
        manifests=_short(MANIFESTS),
        overlay=overlay,
        options=options.flags(kubeconfig, context),
    )
    async with options.connected(kubeconfig, context) as cluster:
        findings = await examine(cluster, SystemClock(), place, version=shared.__version__)
    if output == "json":
        click.echo(as_json(findings))
    else:
        _print(findings)
    if any(one.level is not Level.OK for one in findings):
        raise SystemExit(1)


def _print(findings: list[Finding]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for finding in findings:
        level = len(finding.level)
        text = Text(str(finding))
        text.stylize(_STYLES[finding.level], 0, level)
        console.print(text)
    troubles = sum(one.level is not Level.OK for one in findings)
    console.print(
        f"{troubles} of {len(findings)} checks want a look" if troubles else f"{len(findings)} checks, all well"
    )


def _short(folder: Path) -> str:
    """As seen from here, where that is shorter: a path to paste."""
    relative = os.path.relpath(folder)
    return relative if not relative.startswith("..") else str(folder)
