"""Click options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from shared.cli.options.scope import check_kinds, namespace_name

NONE = "none"
"""The value of --policy for no policy at all, even if one is in force."""

_CLUSTER_OPTIONS = (
    click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, else ~/.kube/config."),
    click.option("--context", metavar="NAME", help="Default: the kubeconfig's current context."),
)
all_namespaces_option = click.option(
    "-n",
    "--namespace",
    default="",
    type=namespace_name,
    metavar="NAME",
    help="Only this namespace. Default: all.",
)
namespace_option = click.option(
    "-n", "--namespace", type=namespace_name, metavar="NAME", help="Default: the context's."
)
kinds_option = click.option(
    "-k",
    "--kinds",
    metavar="NAMES",
    default="",
    callback=check_kinds,
    help="Only these kinds, comma separated: jobs,pods; or all. Default: $TTL_KINDS, else all kinds with a rule.",
)
kinds_dir_option = click.option(
    "--kinds-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Also read the kind rules of this directory. Default: $TTL_KINDS_DIR.",
)
policy_option = click.option(
    "--policy", metavar="FILE", type=click.Path(path_type=Path), help="Apply this policy. Default: $TTL_POLICY."
)
policy_in_force_option = click.option(
    "--policy",
    metavar="FILE|none",
    type=click.Path(path_type=Path),
    help="Apply this policy, or none. Default: $TTL_POLICY, else the installed policy.",
)
output_option = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="The format. Default: text."
)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --kubeconfig and --context to a command."""
    for option in reversed(_CLUSTER_OPTIONS):
        command = option(command)
    return command
