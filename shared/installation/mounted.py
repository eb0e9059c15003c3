"""Read the ConfigMaps of an installation's workloads: settings, kind rules, carrier rules, and a policy."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from shared.adapters.config.carrier_files import read_carriers
from shared.adapters.config.kind_files import RuleFile, as_catalogue, read_rule_files
from shared.adapters.config.policy_file import parse_policy
from shared.adapters.config.settings import Settings, read_settings
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.references.carrier import Carriers
from shared.core.values.objects import get_in, get_text, list_mappings
from shared.errors import TtlError
from shared.installation.inventory import Inventory, Obj, environment_of, name_of, volume_at

READ = ("Deployment", "StatefulSet", "Knative Service", "ContainerSource", "ConfigMap")
"""The parts of an inventory that these functions need."""

Users = Mapping[str, list[str]]
"""Names of ConfigMaps, each with the names of the workloads that read it."""


def find_settings(found: Inventory) -> Users:
    """Find the ConfigMaps that the workloads take environment variables from."""
    users: dict[str, list[str]] = {}
    for _, workload in found.workloads():
        for name in config_maps_of(workload):
            users.setdefault(name, []).append(name_of(workload))
    return users


def find_rules(found: Inventory) -> Users:
    """Find the ConfigMaps that are mounted where TTL_KINDS_DIR points."""
    users: dict[str, list[str]] = {}
    for workload in _readers(found):
        if name := volume_at(workload, environment_of(workload).get("TTL_KINDS_DIR", "")):
            users.setdefault(name, []).append(name_of(workload))
    return users


def find_policies(found: Inventory) -> dict[tuple[str, str], list[str]]:
    """Find the ConfigMaps and keys that TTL_POLICY points to, each with the workloads that read it."""
    users: dict[tuple[str, str], list[str]] = {}
    for workload in _readers(found):
        folder, _, key = environment_of(workload).get("TTL_POLICY", "").rpartition("/")
        if name := volume_at(workload, folder):
            users.setdefault((name, key), []).append(name_of(workload))
    return users


def most_used(users: Users) -> str:
    """The ConfigMap that most workloads read.

    Raises:
        ValueError: No workload reads any.
    """
    return max(users, key=lambda name: len(users[name]))


def parse_settings(config: Obj, kinds: Catalogue) -> tuple[Settings, tuple[KindRule, ...]]:
    """Read settings and the enabled kinds from a ConfigMap.

    Args:
        config: The ConfigMap.
        kinds: All kinds that the installation knows.

    Raises:
        SettingsError: A variable cannot be read.
        ValueError: TTL_KINDS names an unknown kind.
    """
    settings = read_settings(environment=get_in(config, "data") or {})
    return settings, kinds.parse_names(settings.kinds).rules


def read_rules(found: Inventory, name: str) -> list[RuleFile]:
    """Read the shipped rules and those of a ConfigMap, as a function reads its TTL_KINDS_DIR.

    Raises:
        TtlError: A rule cannot be read.
    """
    with _folder_of(found, name) as folder:
        return read_rule_files(folder)


def read_installed_carriers(found: Inventory) -> Carriers:
    """Read the shipped carrier rules, and those of the ConfigMap that is mounted where TTL_REFERENCES_DIR points.

    Raises:
        TtlError: A rule cannot be read.
    """
    named = ((one, environment_of(one).get("TTL_REFERENCES_DIR", "")) for _, one in found.workloads())
    mounted = sorted({*filter(None, (volume_at(workload, folder) for workload, folder in named))})
    if not mounted:
        return read_carriers()
    with _folder_of(found, mounted[0]) as folder:
        return read_carriers(folder)


@contextmanager
def _folder_of(found: Inventory, name: str) -> Iterator[Path]:
    """A folder with the files of a ConfigMap, as a workload mounts it."""
    data = get_in(found.get("ConfigMap", name) or {}, "data")
    with TemporaryDirectory() as folder:
        for key, text in data.items() if isinstance(data, dict) else ():
            Path(folder, Path(key).name).write_text(str(text))
        yield Path(folder)


def read_catalogue(found: Inventory) -> Catalogue:
    """Read all kinds that an installation knows: only the shipped ones if the mounted rules cannot be read."""
    if users := find_rules(found):
        name = most_used(users)
        try:
            if found.get("ConfigMap", name) is not None:
                return as_catalogue(read_rules(found, name))
        except TtlError:
            pass
    return as_catalogue(read_rule_files())


def read_policy_text(found: Inventory, name: str, key: str) -> str | None:
    """Read one key of a ConfigMap; None if there is no text."""
    data = get_in(found.get("ConfigMap", name) or {}, "data")
    text = data.get(key) if isinstance(data, dict) else None
    return text if isinstance(text, str) else None


def read_policy(found: Inventory, kinds: Catalogue, namespace: str) -> tuple[str, Policy]:
    """Read the policy in force and its name; the name is empty if no workload names a policy file.

    Args:
        found: The installation.
        kinds: All kinds that the installation knows.
        namespace: The namespace of the installation.

    Raises:
        TtlError: The policy cannot be read or is invalid, or the workloads name different policies.
    """
    named = list(find_policies(found))
    for workload in _readers(found):
        file = environment_of(workload).get("TTL_POLICY", "")
        if file and not volume_at(workload, file.rpartition("/")[0]):
            what = f"TTL_POLICY of {name_of(workload)} in namespace {namespace}"
            raise TtlError(f"{what}: expected a file of a mounted ConfigMap, got {file}")
    if not named:
        return "", NO_POLICY
    if len(named) > 1:
        names = ", ".join(name for name, _ in named)
        raise TtlError(f"TTL_POLICY: expected one policy for all workloads, got {names}")
    name, key = named[0]
    full_name = f"ConfigMap {namespace}/{name}"
    if problem := found.parts["ConfigMap"].problem:
        raise TtlError(f"{full_name}: {problem}")
    text = read_policy_text(found, name, key)
    if text is None:
        raise TtlError(f"{full_name}: expected {key} in its data, got none")
    return full_name, parse_policy(text, kinds, name=f"{full_name}, {key}")


def _readers(found: Inventory) -> Iterator[Obj]:
    """All parts of an installation that read kind rules and policies."""
    yield from (workload for _, workload in found.workloads())
    yield from found.all("ContainerSource")


def config_maps_of(workload: Obj) -> Iterator[str]:
    """The names of the ConfigMaps from which a workload takes environment variables."""
    for container in list_mappings(workload, "spec.template.spec.containers"):
        for source in list_mappings(container, "envFrom"):
            if name := get_text(source, "configMapRef.name"):
                yield name
