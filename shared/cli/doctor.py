"""`doctor`: check an installation, and show the command that fixes each problem."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

import shared
from shared.adapters.clock import SystemClock
from shared.adapters.config.settings import read_settings
from shared.cli.input.command import command
from shared.cli.input.options import (
    Options,
    cluster_options,
    home_namespace,
    known_kinds,
    namespace_option,
    output_option,
    read_policy,
)
from shared.cli.input.target import connected
from shared.cli.output.printing import terminal_width, wrap, wrap_command
from shared.doctor.archives import ArchivePolicy
from shared.doctor.examine import examine
from shared.doctor.findings import Finding, Level, as_json
from shared.installation.place import HOME, Place

MANIFESTS = Path(shared.__file__ or "").parents[1] / "knative"
_INDENT = 6
_COMMAND = re.compile(r"(kubectl|ttl-after-finished|timedatectl|mkdir) ")
"""The beginning of a fix that is a command; all others are sentences."""

_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


@command()
@namespace_option(f"The installation's. Default: $TTL_NAMESPACE, else {HOME}.")
@click.option(
    "--overlay", default="", metavar="FOLDER", help="The overlay that is installed, for the commands in the output."
)
@click.option(
    "--policy",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Check the archives of this policy, with the credentials of this machine. Default: $TTL_POLICY, else the "
    "installed policy.",
)
@cluster_options
@output_option
async def doctor(options: Options, *, overlay: str, output: str) -> None:
    """Check an installation: one line for each check, and below each problem the command that fixes it.

    Changes nothing. The exit code is 0 if every check passes, else 1.
    """
    place = Place(
        namespace=options.namespace or home_namespace(),
        manifests=_short(MANIFESTS),
        overlay=overlay,
        options=options.flags,
    )
    async with connected(options) as cluster:
        local = _read_local(options.policy)
        findings = await examine(cluster, SystemClock(), place, version=shared.__version__, local=local)
    if output == "json":
        click.echo(as_json(findings))
    else:
        _print(findings)
    if any(one.level is not Level.OK for one in findings):
        raise SystemExit(1)


def _read_local(given: Path | None) -> ArchivePolicy | None:
    """Read the policy file of this machine; None if none is named."""
    settings = read_settings()
    path = given or settings.policy
    if path is None:
        return None
    policy = read_policy(path, known_kinds(None))
    return ArchivePolicy(policy, str(path), is_local=True, cluster=settings.cluster_name)


def _print(findings: list[Finding]) -> None:
    console, width = Console(soft_wrap=True, highlight=False), terminal_width()
    for finding in findings:
        level = len(finding.level)
        text = Text("\n".join(wrap_finding(finding, width)) if width else str(finding))
        text.stylize(_STYLES[finding.level], 0, level)
        console.print(text)
    failed = sum(one.level is not Level.OK for one in findings)
    console.print(f"{failed} of {len(findings)} checks did not pass" if failed else f"{len(findings)} checks passed")


def wrap_finding(finding: Finding, width: int) -> Iterator[str]:
    """Yield the lines of one check; the comment beside its command moves below it if both do not fit one line."""
    text = f"{finding.what} — {finding.detail}" if finding.detail else finding.what
    yield from wrap(text, width, first=f"{finding.level:4}  ", indent=_INDENT)
    if _INDENT + cell_len(finding.fix) <= width:
        yield from [" " * _INDENT + finding.fix] if finding.fix else []
        return
    if not _COMMAND.match(finding.fix):
        yield from wrap(finding.fix, width, first=" " * _INDENT, indent=_INDENT)
        return
    command, _, comment = finding.fix.partition("    # ")
    yield from wrap_command(command, width, indent=_INDENT)
    if comment:
        yield from (f"{' ' * _INDENT}# {line}" for line in wrap(comment, width - _INDENT - len("# ")))


def _short(folder: Path) -> str:
    """Return the path relative to the working directory if it is below it, so that it can be pasted."""
    relative = os.path.relpath(folder)
    return relative if not relative.startswith("..") else str(folder)
