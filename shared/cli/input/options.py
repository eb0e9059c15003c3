"""Options that several commands share, and their values: each falls back to a setting, then to a default."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from shared.adapters.config.kind_files import RuleFile, as_catalogue, read_rule_files
from shared.adapters.config.settings import SettingsError, parse_kinds, read_settings
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.values.timing import parse_duration
from shared.installation.place import HOME

NONE = "none"
"""The value of --policy for no policy at all, even if one is in force."""

_NAMESPACE = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

CallableT = TypeVar("CallableT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The values of the shared options; an option that is not given, or that a command does not have, is empty.

    Attributes:
        kubeconfig: The file that names the cluster.
        context: The context in that file.
        namespace: The namespace.
        kinds: Kinds, comma separated, or `all`.
        kinds_dir: A directory of kind rules.
        references_dir: A directory of carrier rules.
        policy: A policy file, or `none`.
        archive: The name of an archive of the policy.
        cluster: The name of a cluster in the archive.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str = ""
    kinds: str = ""
    kinds_dir: Path | None = None
    references_dir: Path | None = None
    policy: Path | None = None
    archive: str = ""
    cluster: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that make kubectl use the same cluster."""
        given = (("--kubeconfig", self.kubeconfig), ("--context", self.context))
        return tuple(f"{name}={value}" for name, value in given if value)

    @property
    def by_variable(self) -> dict[str, tuple[str, str | None]]:
        """The options that replace a variable, for `named_by_option`."""
        return {
            "TTL_KINDS": ("--kinds", self.kinds),
            "TTL_KINDS_DIR": ("--kinds-dir", str(self.kinds_dir or "")),
            "TTL_REFERENCES_DIR": ("--references-dir", str(self.references_dir or "")),
            "TTL_POLICY": ("--policy", str(self.policy or "")),
        }


def namespace_name(value: str) -> str:
    """Check the name of a Namespace: any other text must not become part of a request's path.

    Raises:
        BadParameter: The value is not a valid name.
    """
    if value and not _NAMESPACE.fullmatch(value):
        raise click.BadParameter(f"expected the name of a namespace, got {value!r}")
    return value


def split_kinds(words: str) -> tuple[str, ...]:
    """Split the value of --kinds; empty for `all`, and if the option is not given.

    Raises:
        ValueError: The option is given and names no kind.
    """
    return parse_kinds(words) if words else ()


def _check_kinds(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        split_kinds(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}, got {value!r}") from None
    return value


_PLACES = "ttl.places"


def _note_place(context: click.Context, parameter: click.Parameter, value: str | bool) -> str | bool:
    """Check that not both -n and -A are given."""
    given = context.meta.setdefault(_PLACES, set())
    given |= {parameter.name} if value else set()
    if len(given) > 1:
        raise click.UsageError("expected either -n or -A, got both")
    return value


def namespace_option(meaning: str, default: str = "") -> Callable[[CallableT], CallableT]:
    """Return the option --namespace with this help text."""
    return click.option(
        "-n",
        "--namespace",
        type=namespace_name,
        callback=_note_place,
        default=default,
        show_default=bool(default),
        metavar="NAME",
        help=meaning,
    )


def all_namespaces_option(function: CallableT) -> CallableT:
    """Add the options --namespace and --all-namespaces to a command that is about all namespaces by default."""
    everywhere = click.option(
        "-A",
        "--all-namespaces",
        is_flag=True,
        expose_value=False,
        callback=_note_place,
        help="All namespaces, as without -n.",
    )
    return namespace_option("Only this namespace. Default: all.")(everywhere(function))


def _check_reason(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if not value.isprintable():
        raise click.BadParameter(f"expected one line without control characters, got {value!r}")
    return value


def reason_option(meaning: str) -> Callable[[CallableT], CallableT]:
    """Return the required option --reason with this help text."""
    return click.option("--reason", required=True, metavar="WHY", callback=_check_reason, help=meaning)


context_namespace_option = namespace_option("Default: the context's.")
kinds_option = click.option(
    "-k",
    "--kinds",
    metavar="NAMES",
    default="",
    callback=_check_kinds,
    help="Only these kinds, comma separated: jobs,pods; or all. Default: $TTL_KINDS, else all kinds with a rule.",
)
kinds_dir_option = click.option(
    "--kinds-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Also read the kind rules of this directory. Default: $TTL_KINDS_DIR.",
)
references_dir_option = click.option(
    "--references-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Also read the carrier rules of this directory. Default: $TTL_REFERENCES_DIR.",
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


def cluster_options(command: CallableT) -> CallableT:
    """Add --kubeconfig and --context to a command."""
    command = click.option("--context", metavar="NAME", help="Default: the kubeconfig's current context.")(command)
    return click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, else ~/.kube/config.")(command)


def object_options(command: CallableT) -> CallableT:
    """Add the options of a command about one object to it, except --namespace."""
    return kinds_dir_option(policy_in_force_option(cluster_options(command)))


@contextmanager
def named_by_option(given: Mapping[str, tuple[str, str | None]]) -> Iterator[dict[str, str]]:
    """Map options to the variables that they replace; an error about a variable names the option instead.

    Args:
        given: For each variable, the option and its value; None or empty if the option is not given.

    Yields:
        The given values by variable, for `read_settings`.

    Raises:
        SettingsError: As raised in the block.
    """
    try:
        yield {variable: value for variable, (_, value) in given.items() if value}
    except SettingsError as error:
        variable, _, problem = str(error).partition(": ")
        option, value = given.get(variable, ("", None))
        if not value:
            raise
        raise SettingsError(f"{option}: {problem}") from None


def home_namespace() -> str:
    """Return the namespace in which an installation is expected: $TTL_NAMESPACE, else the one in the manifests."""
    return read_settings().home_namespace or HOME


def known_kinds(kinds_dir: Path | None) -> Catalogue:
    """Return the kinds of `known_rules`; raises the same errors."""
    return as_catalogue(known_rules(kinds_dir))


def known_rules(kinds_dir: Path | None) -> list[RuleFile]:
    """Read the kind rules: the shipped ones, and those of the user's directory, else of $TTL_KINDS_DIR.

    Raises:
        TtlError: A rule in the directory is invalid.
    """
    return read_rule_files(kinds_dir or read_settings().kinds_dir)


def read_policy(path: Path | None, kinds: Catalogue) -> Policy:
    """Read the policy of a file, else of $TTL_POLICY; return an empty policy for `none` or if neither is given.

    Raises:
        TtlError: The file is not a valid policy.
    """
    if path == Path(NONE):
        return NO_POLICY
    path = path or read_settings().policy
    if path is None:
        return NO_POLICY
    from shared.adapters.config.policy_file import read_policy as read  # noqa: PLC0415 - only if a policy is given

    return read(path, kinds)


def duration_option(_context: click.Context, _parameter: click.Parameter, value: str | None) -> timedelta | None:
    """Parse the value of an option that is a duration."""
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
