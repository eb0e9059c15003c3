"""`kinds manifests`: print the manifests that add kinds to an installation: RBAC, sources and delete guard."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import click
import yaml

from shared.adapters.config.kind_files import RuleFile, as_catalogue
from shared.cli.input.command import command
from shared.cli.input.options import Options, kinds_dir_option, known_rules, namespace_option
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import printable
from shared.installation.guards import guards
from shared.installation.kind_manifests import Manifest, component_of, deadline_deletes, identity_of, join
from shared.installation.place import HOME

_STYLE: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "width": 120}
_FOLDED_FROM = 100
"""A text of at least this many characters is written over several lines."""


_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
"""Texts that other YAML parsers, such as kubectl's, read as numbers: a digest such as 6989146886e8."""


class _Folding(yaml.SafeDumper):
    """Writes long expressions over several lines, and texts that look like numbers in quotes."""

    def represent_str(self, text: str) -> yaml.ScalarNode:
        is_long = len(text) >= _FOLDED_FROM and "\n" not in text
        style = "'" if _NUMBER.fullmatch(text) else ">" if is_long else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Folding.add_representer(str, _Folding.represent_str)


@command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--source",
    type=click.Choice(["apiserver", "watch"]),
    default="watch",
    show_default=True,
    help="The source of their events: an ApiServerSource, which is then printed too, or our own watch.",
)
@namespace_option("The namespace of the installation.", default=HOME)
@click.option(
    "--only",
    type=click.Choice(["rights", "guard"]),
    help="Only RBAC and the source, or only the delete guard: the admission policies.",
)
@click.option(
    "--delete-at-deadline",
    is_flag=True,
    help="Also let enforce delete objects at their active deadline, if they have on-deadline: delete.",
)
@click.option("--user", "users", metavar="NAME", multiple=True, help="Also bind the delete guard to this user.")
@kinds_dir_option
async def manifests(
    options: Options,
    *,
    names: tuple[str, ...],
    source: str,
    only: str | None,
    delete_at_deadline: bool,
    users: tuple[str, ...],
) -> None:
    """Print the manifests that add kinds to an installation, for `kubectl apply -f -` or a file of an overlay.

    These are RBAC rules for the kinds and the delete guard: admission policies by which the API server denies our
    accounts the DELETE of an object that must be kept.
    """
    namespace = options.namespace
    files = known_rules(options.kinds_dir)
    try:
        rules = as_catalogue(files).parse_names(names).rules
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with_source = source == "apiserver"
    documents = (
        [] if only == "guard" else [_as_yaml(one) for one in join(rules, namespace=namespace, with_source=with_source)]
    )
    if delete_at_deadline and only != "guard":
        documents += map(_as_yaml, deadline_deletes(rules))
    if only != "rights":
        documents += [_as_folded_yaml(one) for one in guards(rules, namespace, users)]
    user_rules = [one for one in files if one.rule in rules and not one.is_shipped]
    comments = [*_about(rules), *_about_user_rules(user_rules), *_opt_in(rules)]
    comments += _about_sources(rules, namespace) if with_source else ()
    comments = [_about_guard(rules)] if only == "guard" else comments
    click.echo("\n".join([*(f"# {printable(line)}" for line in comments), "---", "---\n".join(documents)]), nl=False)


def _as_yaml(one: Manifest) -> str:
    return f"# {one.about}\n{yaml.safe_dump(one.body, **_STYLE)}"


def _as_folded_yaml(one: Manifest) -> str:
    text = yaml.dump(one.body, Dumper=_Folding, sort_keys=False, default_flow_style=False, width=120)
    return f"# {one.about}\n{text}"


def _about(rules: tuple[KindRule, ...]) -> Iterator[str]:
    names = dict.fromkeys(rule.name for rule in rules)
    yield f"Adds {', '.join(names)} to an installation of ttl-after-finished."
    yield f"TTL_KINDS in its settings must be all, or include: {','.join(names)}"


def _about_guard(rules: tuple[KindRule, ...]) -> str:
    names = " ".join(dict.fromkeys(rule.name for rule in rules))
    return f"Made by `ttl-after-finished kinds manifests {names} --only guard`. If a rule changes, generate it again."


def _about_user_rules(files: list[RuleFile]) -> Iterator[str]:
    for one in files:
        yield f"{one.rule.name}: your own rule; also add {one.path.name} to components/kinds for the functions."


def _opt_in(rules: tuple[KindRule, ...]) -> Iterator[str]:
    for rule in rules:
        if rule.opt_in:
            why = " ".join(rule.opt_in.split())
            condition = "deleted only if the object or a policy rule that names the kind sets a TTL"
            yield f"{rule.name}: opt-in, {condition}: {why}"


def _about_sources(rules: tuple[KindRule, ...], namespace: str) -> Iterator[str]:
    versions = [(rule, version) for rule in rules for version in rule.api_versions]
    for first, others in itertools.groupby(versions, key=lambda one: one[0].name):
        if later := ", ".join(version for _, version in list(others)[1:]):
            yield f"{first}: if a cluster serves it only as {later}, set that version in its ApiServerSource."
    if subjects := [identity_of(rule, namespace) for rule in rules if not component_of(rule.group, rule.plural)]:
        yield "With components/eventpolicy, add to `from` of the EventPolicy `sources`:"
        yield from (f"  - sub: {subject}" for subject in dict.fromkeys(subjects))
