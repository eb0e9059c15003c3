"""Print what refers to one Secret or ConfigMap, for `references` and `explain`."""

import json
from typing import TYPE_CHECKING

import click

from shared.cli.deleters.in_force import InForce
from shared.cli.deleters.obstacles import find_stops
from shared.cli.input.options import Options
from shared.cli.input.target import namespace_of
from shared.cli.output.width import terminal_width
from shared.cli.usage.findings import carriers_of, find_one_usage
from shared.cli.usage.usage_report import is_unsure, usage_as_json, usage_as_text
from shared.core.kinds.rule import KindRule
from shared.evaluation.usage import UsageReader

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster


async def print_usage(
    cluster: "KubernetesCluster", rule: KindRule, name: str, *, options: Options, force: InForce, output: str
) -> None:
    """Print what refers to one Secret or ConfigMap, and the decision about it.

    Raises:
        AbsentObjectError: It does not exist.
        TtlError: It cannot be read.
        SystemExit: It is unknown whether the object is used, or which policy is in force; the output says why.
    """
    chosen = force.choose(options.policy)
    reader = UsageReader(cluster, carriers_of(options))
    place = namespace_of(options)
    one = await find_one_usage(reader, cluster, rule, namespace=place, name=name, policy=chosen.policy)
    if output == "json":
        click.echo(json.dumps(usage_as_json(one, chosen), indent=2))
    else:
        click.echo(usage_as_text(one, chosen, list(find_stops(force, one.now)), terminal_width()))
    if one.is_used is None or is_unsure(one, chosen):
        raise SystemExit(1)
