"""`doctor`: what is wrong with an installation, and the command that mends it."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

import shared
from shared.adapters.clock import SystemClock
from shared.cli.options.click_options import cluster_options, output_option
from shared.cli.options.scope import command, namespace_name
from shared.cli.options.values import cluster_flags, home_namespace
from shared.cli.output.width import terminal_width, wrap, wrap_command
from shared.cli.process.asynchronous import asynchronous
from shared.cli.process.connection import connected
from shared.doctor.examine import examine
from shared.doctor.findings import Finding, Level, Place, as_json
from shared.installation.defaults import HOME

MANIFESTS = Path(shared.__file__ or "").parents[1] / "knative"
_INDENT = 6
_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


@command()
@click.option(
    "-n",
    "--namespace",
    type=namespace_name,
    metavar="NAME",
    help=f"Of the installation. Default: $TTL_NAMESPACE, else {HOME}.",
)
@click.option("--overlay", default="", metavar="FOLDER", help="What was applied; the commands name it.")
@cluster_options
@output_option
@asynchronous
async def doctor(namespace: str | None, overlay: str, kubeconfig: str | None, context: str | None, output: str) -> None:
    """Check an installation: a line for each check, and below what is wrong the command that mends it.

    Changes nothing. The exit code is 0 where everything could be checked and is well, else 1.
    """
    place = Place(
        namespace=namespace or home_namespace(),
        manifests=_short(MANIFESTS),
        overlay=overlay,
        options=cluster_flags(kubeconfig, context),
    )
    async with connected(kubeconfig, context) as cluster:
        findings = await examine(cluster, SystemClock(), place, version=shared.__version__)
    if output == "json":
        click.echo(as_json(findings))
    else:
        _print(findings)
    if any(one.level is not Level.OK for one in findings):
        raise SystemExit(1)


def _print(findings: list[Finding]) -> None:
    console, width = Console(soft_wrap=True, highlight=False), terminal_width()
    for finding in findings:
        level = len(finding.level)
        text = Text("\n".join(_wrap(finding, width)) if width else str(finding))
        text.stylize(_STYLES[finding.level], 0, level)
        console.print(text)
    troubles = sum(one.level is not Level.OK for one in findings)
    console.print(
        f"{troubles} of {len(findings)} checks want a look" if troubles else f"{len(findings)} checks, all well"
    )


def _wrap(finding: Finding, width: int) -> Iterator[str]:
    """The lines of one check; a comment beside its command follows below, so that the command stays whole longer."""
    told = f"{finding.what} — {finding.detail}" if finding.detail else finding.what
    yield from wrap(told, width, first=f"{finding.level:4}  ", indent=_INDENT)
    if _INDENT + cell_len(finding.fix) <= width:
        yield from [" " * _INDENT + finding.fix] if finding.fix else []
        return
    command, _, comment = finding.fix.partition("    # ")
    yield from wrap_command(command, width, indent=_INDENT)
    if comment:
        yield from (f"{' ' * _INDENT}# {line}" for line in wrap(comment, width - _INDENT - len("# ")))


def _short(folder: Path) -> str:
    """As seen from here, where that is shorter: a path to paste."""
    relative = os.path.relpath(folder)
    return relative if not relative.startswith("..") else str(folder)
