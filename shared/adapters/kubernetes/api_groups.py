"""The versions and kinds that an API group serves, and the choice among the rules of a kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.core.kinds.rule import KindRule
from shared.core.objects import get_text, list_mappings
from shared.errors import TtlError


@dataclass(frozen=True, slots=True)
class ServedResource:
    """The plural and the scope of a kind in one version."""

    plural: str
    scope: str


Kinds = Mapping[str, ServedResource]
"""The resources of one version, by kind."""


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """An API group of a cluster, as discovery returned it.

    Attributes:
        read_at: The time of the read, in seconds of a monotonic clock.
        versions: By apiVersion, the preferred one first: its kinds, or the error of reading them.
        is_hidden: This process has no right to read the group's discovery document.
    """

    read_at: float
    versions: Mapping[str, Kinds | TtlError]
    is_hidden: bool = False

    def choose(self, rules: Sequence[KindRule]) -> KindRule | None:
        """Choose among the rules of a kind, and return the rule with the served version, plural and scope.

        The rule that knows the preferred version takes precedence.

        Returns:
            None if the group serves no version that a rule knows.

        Raises:
            TtlError: The version that decides could not be read.
        """
        if self.is_hidden:
            return rules[0] if len(rules) == 1 else None  # with several rules, a choice would be a guess
        by_version: dict[str, KindRule] = {}
        for rule in rules:
            by_version |= {version: rule for version in rule.api_versions if version not in by_version}
        preferred = next(iter(self.versions), "")
        for version in sorted(by_version, key=lambda one: one != preferred):
            kinds = self.versions.get(version, {})
            if isinstance(kinds, TtlError):
                raise kinds
            if resource := kinds.get(rules[0].kind):
                return _as_served(by_version[version], version, resource)
        return None

    def list_versions(self, kind: str) -> list[str]:
        """Return the versions that serve a kind, also those that no rule knows."""
        read = {version: kinds for version, kinds in self.versions.items() if not isinstance(kinds, TtlError)}
        return [version for version, kinds in read.items() if kind in kinds]


def parse_versions(group: Mapping[str, Any]) -> list[str]:
    """Return the apiVersions of an APIGroup, the preferred one first."""
    served = [get_text(one, "groupVersion") for one in list_mappings(group, "versions")]
    preferred = get_text(group, "preferredVersion.groupVersion")
    return sorted(filter(None, served), key=lambda one: one != preferred)


def parse_kinds(resources: Any) -> Kinds:
    """Return the kinds of an APIResourceList."""
    kinds: dict[str, ServedResource] = {}
    for one in list_mappings(resources, "resources"):
        name, scope = get_text(one, "name"), "Namespaced" if one.get("namespaced") is True else "Cluster"
        if name and "/" not in name:  # skip subresources: pods/status has kind Pod too
            kinds.setdefault(get_text(one, "kind"), ServedResource(name, scope))
    return kinds


def _as_served(rule: KindRule, version: str, resource: ServedResource) -> KindRule:
    if (rule.api_version, rule.plural, rule.scope) == (version, resource.plural, resource.scope):
        return rule
    others = tuple(one for one in rule.api_versions if one != version)
    update = {"api_versions": (version, *others), "plural": resource.plural, "scope": resource.scope}
    return rule.model_copy(update=update)
