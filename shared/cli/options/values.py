"""The values of shared options: each falls back to a setting, then to a default."""

from pathlib import Path

from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.settings import read_settings
from shared.cli.options.click_options import NONE
from shared.core.kinds.catalogue import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.installation.defaults import HOME


def cluster_flags(kubeconfig: str | None, context: str | None) -> tuple[str, ...]:
    """Return the flags that make kubectl use the same cluster as this command."""
    given = (("--kubeconfig", kubeconfig), ("--context", context))
    return tuple(f"{name}={value}" for name, value in given if value)


def home_namespace() -> str:
    """Return the namespace in which an installation is expected: $TTL_NAMESPACE, else the one in the manifests."""
    return read_settings().home_namespace or HOME


def known_kinds(kinds_dir: Path | None) -> Catalogue:
    """Read the kind rules: the shipped ones and those of the user's directory.

    Raises:
        TtlError: A rule in the directory is invalid.
    """
    return read_catalogue(kinds_dir or read_settings().kinds_dir)


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
