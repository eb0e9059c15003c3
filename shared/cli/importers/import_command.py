"""`import`: the configuration of another cleaner as a policy."""

import importlib
from collections.abc import Sequence
from types import ModuleType

import click
import yaml

from shared.adapters.config.policy_file import parse_policy
from shared.adapters.config.yaml_file import FileError
from shared.cli.importers.imported import Imported, Source, read_cluster, read_files
from shared.cli.input.command import command
from shared.cli.input.options import Options, cluster_options, kinds_dir_option, known_kinds
from shared.cli.input.target import connected
from shared.cli.output.printing import inform, warn
from shared.core.values.objects import printable
from shared.errors import TtlError

IMPORTERS = {
    "kube-janitor": "kube_janitor",
    "k8s-ttl-controller": "k8s_ttl_controller",
    "kyverno": "kyverno",
    "argo": "argo",
    "tekton-pruner": "tekton_pruner",
}
"""The module of each cleaner."""

_HEAD = """\
# Written by `kubectl ttl import --from {cleaner}`, which also printed what differs.
# Preview it: `kubectl ttl plan --policy FILE`.
"""


@command("import")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--from", "cleaner", type=click.Choice(list(IMPORTERS)), required=True, help="The other cleaner.")
@kinds_dir_option
@cluster_options
async def import_policy(options: Options, *, files: tuple[str, ...], cleaner: str) -> None:
    """Write a policy from the configuration of another cleaner to standard output. Changes nothing in the cluster.

    Reads the cleaner's rules, its ConfigMaps, and the annotations or labels of objects: from each FILE, as
    `kubectl get -o yaml` writes it or as the cleaner reads it (- for standard input), or from the cluster without FILE.

    Standard error has what the policy does differently, and what has no equivalent, with its place.
    """
    importer = importlib.import_module(f"shared.cli.importers.{IMPORTERS[cleaner]}")
    imported = Imported(known_kinds(options.kinds_dir))
    sources, problems = await _read(options, files, importer, imported)
    importer.read(sources, imported)
    text = as_policy(imported, cleaner)
    for difference in imported.differences:
        inform(f"differs: {difference}")
    for note in imported.notes():
        inform(f"note: {printable(note)}")
    click.echo(text, nl=False)
    if not imported.rules:
        inform(f"note: nothing of {cleaner} was found that a rule can have; the policy has no rules")
    for problem in problems:
        warn(f"not read, so the policy may lack rules: {printable(problem)}")
    if problems:
        raise SystemExit(1)


async def _read(
    options: Options, files: Sequence[str], importer: ModuleType, imported: Imported
) -> tuple[list[Source], list[str]]:
    if files:
        return list(read_files(files)), []
    async with connected(options) as cluster:
        return await read_cluster(cluster, importer.WANTED, imported.kinds)


def as_policy(imported: Imported, cleaner: str) -> str:
    """Write the rules as a policy file, which is valid.

    Raises:
        TtlError: A value of the other cleaner makes a rule invalid.
    """
    document = {"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy", "rules": imported.rules}
    text = _HEAD.format(cleaner=cleaner) + yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120
    )
    try:
        parse_policy(text, imported.kinds, name="the policy")
    except FileError as error:
        raise TtlError(f"a value of {cleaner} is not valid in a policy: {error}") from None
    return text


class _Dumper(yaml.SafeDumper):
    """Without aliases, which a reader would have to resolve."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - as in the base class
        return True
