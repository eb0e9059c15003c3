"""`references`: what refers to a Secret or a ConfigMap, and by which field."""

import click

from shared.cli.deleters.in_force import read_in_force
from shared.cli.input.command import command
from shared.cli.input.options import (
    Options,
    context_namespace_option,
    object_options,
    output_option,
    references_dir_option,
)
from shared.cli.input.target import connected, split_target
from shared.cli.usage.findings import find_usage_kind
from shared.cli.usage.usage_report import print_usage


@command()
@click.argument("target", nargs=-1, metavar="KIND/NAME")
@context_namespace_option
@references_dir_option
@object_options
@output_option
async def references(options: Options, *, target: tuple[str, ...], output: str) -> None:
    """Show which objects refer to a Secret or a ConfigMap, and by which field; or since when it is unused.

    All kinds of the cluster that may refer to it are listed. The data of Secrets and ConfigMaps is not read. If a kind
    cannot be listed, it is unknown whether the object is used, and the object is kept. Then the exit code is 1.

    The installed policy applies, unless --policy or $TTL_POLICY names another. If the policy in force is unknown, and
    may change the decision, the exit code is 1.
    """
    word, name = split_target(target)
    rule = find_usage_kind(word)
    if rule is None:
        raise click.UsageError(f"expected a Secret or a ConfigMap, for instance configmap/settings, got {word!r}")
    async with connected(options) as cluster:
        force = await read_in_force(cluster, options)
        await print_usage(cluster, rule, name, options=options, force=force, output=output)
