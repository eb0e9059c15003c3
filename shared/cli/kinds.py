"""`kinds`: list the kind rules, explain or test one, and print the manifests of a kind."""

import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml
from rich import box
from rich.console import Console
from rich.table import Table

from shared.adapters.config.kind_files import RuleFile, as_catalogue
from shared.adapters.config.yaml_file import read_model
from shared.cli.input.command import Command, command
from shared.cli.input.documents import open_file, read_documents
from shared.cli.input.options import (
    Options,
    kinds_dir_option,
    known_kinds,
    known_rules,
    namespace_option,
    output_option,
)
from shared.cli.kind_rules.cases import test_all
from shared.cli.kind_rules.rule_text import describe_rule, summarize_finished, summarize_ttl
from shared.cli.output.printing import echo, terminal_width, wrap
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import printable
from shared.installation.guards import guards
from shared.installation.kind_manifests import Manifest, component_of, deadline_deletes, identity_of, join
from shared.installation.place import HOME

_COLUMNS = {"NAME": 50, "VERSIONS": 17, "OPT-IN": 6, "FINISHED BY": 40, "ITS OWN TTL": 40, "RULE": 50}
"""Each column with the most characters of its cells; names are never cut."""

_WIDTH = 120

_UNCUT = 10_000
"""The width of the table into a pipe or a file, where nothing is cut."""

_GAP = 3
"""Spaces beside a column, including those at the edges."""


class _Kinds(click.Group):
    """A group in which `kinds` and `kinds NAME` mean `kinds show`."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Kinds)
def kinds() -> None:
    """List the kind rules, explain one, test a rule, or print the manifests of a kind.

    `kinds` lists all rules, `kinds NAME` explains one.
    """


@kinds.command()
@click.argument("name", required=False)
@kinds_dir_option
@output_option
async def show(options: Options, *, name: str | None, output: str) -> None:
    """List all kind rules, or explain the rule of NAME. `kinds` without a subcommand does the same."""
    files = known_rules(options.kinds_dir)
    if name is not None:
        try:
            rules = as_catalogue(files).find_by_name(name)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        files = [one for one in files if one.rule in rules]
    if output == "json":
        reports = [_as_json(one) for one in files]
        click.echo(json.dumps(reports[0] if name is not None and len(reports) == 1 else reports, indent=2))
    elif name is None:
        _print_table(files)
    else:
        click.echo("\n\n".join(_explain(one) for one in files))


@kinds.command()
@click.argument("filename", metavar="FILE")
@click.option("--rule", metavar="RULE", type=click.Path(path_type=Path), help="Test this kind rule alone.")
@kinds_dir_option
async def test(options: Options, *, filename: str, rule: Path | None) -> None:
    """Apply the rules to the objects in a YAML FILE (- for stdin), and print the results.

    A document may also be a case: `name`, `expect: {finished: true, at: TIME, outcome: succeeded, ttl: 1h}` and
    `object`. If a result differs from `expect`, it is printed as WRONG, and the exit code is 1.
    """
    kinds = Catalogue((read_model(rule, KindRule),)) if rule else known_kinds(options.kinds_dir)
    name, stream = ("stdin", sys.stdin) if filename == "-" else (filename, open_file(filename))
    with stream:
        results = list(test_all(list(read_documents(stream, name)), kinds, name))
    for result in results:
        click.echo(result.text)
    wrong = sum(not result.is_right for result in results)
    cases = sum(result.is_case for result in results)
    click.echo(f"objects: {len(results)}; with an expected result: {cases}; wrong: {wrong}")
    if wrong:
        raise SystemExit(1)


def _print_table(files: list[RuleFile]) -> None:
    has_user_rules = any(not one.is_shipped for one in files)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    width = terminal_width()
    longest = max((len(one.rule.name) for one in files), default=0)
    widths = dict.fromkeys(_COLUMNS) if width is None else _fit(width, longest=longest)
    names = [name for name in _COLUMNS if name in widths and (has_user_rules or name != "RULE")]
    for name in names:
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=widths[name])
    for one in sorted(files, key=lambda one: (bool(one.rule.never_finishes), one.rule.name)):
        rule = one.rule
        versions = ", ".join(version.rpartition("/")[2] for version in rule.api_versions)
        opt_in = "yes" if rule.opt_in else "-"
        cells = (rule.name, versions, opt_in, summarize_finished(rule), summarize_ttl(rule), _mark(one))
        row = dict(zip(_COLUMNS, cells, strict=True))
        table.add_row(*(row[name] for name in names))
    Console(width=width or _UNCUT, markup=False).print(table)
    finishing = [one for one in files if not one.rule.never_finishes]
    opt_ins = sum(bool(one.rule.opt_in) for one in finishing)
    echo(
        f"{len(finishing)} kinds finish, {opt_ins} of them are opt-in; {len(files) - len(finishing)} never finish. "
        "`ttl-after-finished kinds NAME` explains one."
    )


def _fit(width: int, *, longest: int) -> Mapping[str, int | None]:
    """Return the columns that fit, with their widths; names stay whole, FINISHED BY is cut first."""
    if width >= sum(_COLUMNS.values()):
        return _COLUMNS
    rest = width - longest - _COLUMNS["OPT-IN"] - 3 * _GAP
    return {"NAME": longest, "OPT-IN": _COLUMNS["OPT-IN"], "FINISHED BY": max(rest, len("FINISHED BY"))}


def _mark(one: RuleFile) -> str:
    if one.is_shipped:
        return "shipped"
    return "yours, replaces the shipped one" if one.replaces else "yours"


def _explain(one: RuleFile) -> str:
    rule = one.rule
    width = terminal_width() or _WIDTH
    lines = [f"{rule.kind} ({rule.name}), {'namespaced' if rule.scope == 'Namespaced' else 'cluster-scoped'}"]
    for name, sentences in [*describe_rule(rule), ("rule", [_origin(one)])]:
        labels = [name, *[""] * (len(sentences) - 1)]
        for label, sentence in zip(labels, sentences, strict=True):
            lines += wrap(printable(sentence), width, first=f"  {label:13} ", indent=18)
    return "\n".join(lines)


def _origin(one: RuleFile) -> str:
    if one.is_shipped:
        return f"shipped, {one.path.name}"
    replaced = f", replaces the shipped rule {one.replaces.path.name}" if one.replaces else ""
    return f"yours, {one.path}{replaced}"


def _as_json(one: RuleFile) -> dict[str, Any]:
    return {
        "name": one.rule.name,
        "shipped": one.is_shipped,
        "file": one.path.name if one.is_shipped else str(one.path),
        "replaces": one.replaces.path.name if one.replaces else None,
        "rule": one.rule.model_dump(mode="json", by_alias=True, exclude_unset=True),
    }


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


kinds.add_command(manifests)


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
