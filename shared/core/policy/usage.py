"""Read the `unused` of a policy rule: it has unused Secrets and ConfigMaps deleted.

It never touches an object that was never seen used, unless the rule has `neverUsed`. A program may find such an object
by its name, a label, or a text in data.

    unused:
      ttl: 7d          # the time from the first pass that finds the object unused to its deletion
      audit: true      # report what would be deleted, and delete nothing
      neverUsed: true  # take objects that were never seen used, too; only in namespaces or of objects that it names
    archive: {to: main, grace: 24h}   # beside it: store each object in an archive before its deletion

A rule with `unused` names its kinds, matches only Secrets and ConfigMaps, and sets nothing but `archive` and `audit`
beside it. If the rule itself has `audit: true`, objects are not even marked. It
takes effect in the namespaces of its `match.namespaces`. Without that field, it takes effect in those with the
annotation `ttlafterfinished.dev/unused: "true"`. A namespace with the value "false" is left alone.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from shared.core.decision.namespaces import Namespace
from shared.core.kinds.predicates import RuleModel
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.archives import RuleArchive
from shared.core.policy.matching import DURATION_SCHEMA, Duration, Match, is_glob
from shared.core.values.objects import quote

CONFIG_MAPS = KindRule(
    api_versions=("v1",), kind="ConfigMap", plural="configmaps", short_names=("cm",), never_finishes="it has settings"
)
SECRETS = KindRule(api_versions=("v1",), kind="Secret", plural="secrets", never_finishes="it has credentials")
USAGE_KINDS = Catalogue((CONFIG_MAPS, SECRETS))
"""The kinds of which unused objects are deleted."""

_BESIDE = frozenset({"name", "match", "when", "unused", "archive", "audit"})


def _check_ttl(ttl: timedelta) -> timedelta:
    if not ttl:
        raise ValueError("expected a duration of more than 0, got 0")
    return ttl


class RuleUnused(RuleModel):
    """Never deletes a Secret or ConfigMap that was never seen used, unless neverUsed is set.

    It never deletes an object either that is held, owned or immutable, that has a finalizer, or that other programs
    read by a name, a label or a type. While it is unknown what refers to an object, the object is kept. Secrets and
    ConfigMaps that were used, and to which nothing refers any more, are deleted.
    """

    ttl: Annotated[Duration, AfterValidator(_check_ttl), WithJsonSchema(DURATION_SCHEMA)] = Field(
        description="The time from the first pass that finds the object unused to its deletion. If a tick finds a "
        "reference, an owner, a hold or a change of the object, the TTL starts again."
    )
    audit: bool = Field(
        default=False,
        strict=True,
        description="Whether objects are only reported. They are marked with the instant since which they are unused, "
        "and not deleted.",
    )
    never_used: bool = Field(
        default=False,
        strict=True,
        description="Whether objects are deleted, too, that were never seen used. A program may find such an object by "
        "its name, a label, or a text in data. Needs match.namespaces.names without a glob, or match.labels with a "
        "value.",
    )


def check_unused(unused: RuleUnused, fields: Collection[str], match: Match, archive: RuleArchive | None = None) -> None:
    """Check a rule with `unused`.

    Args:
        unused: Its field `unused`.
        fields: The names of the fields that the rule sets.
        match: What it matches.
        archive: How objects are archived before they are deleted; None if they are not.

    Raises:
        ValueError: It sets something else as well, or matches by a field that Secrets and ConfigMaps do not have.
    """
    if beside := sorted({*fields} - _BESIDE):
        raise ValueError(f"unused: expected only match, when, archive and audit beside it, got {', '.join(beside)}")
    if archive is not None and (of_archive := archive.model_fields_set & {"logs", "children"}):
        name = min(of_archive)
        raise ValueError(f"archive.{name}: expected only to and grace beside unused, got {name}")
    if match.age is not None or match.owners is not None:
        raise ValueError("unused: expected no age and no owners in match; set the ttl of unused instead")
    if unused.never_used and not _is_narrow(match):
        expected = "expected match.namespaces.names without a glob, or match.labels with a value"
        raise ValueError(f"unused.neverUsed: {expected}: nothing else shows that no program reads the objects")


def _is_narrow(match: Match) -> bool:
    """Return whether a rule says by names or by labels which objects it is about.

    A requirement without a value to be equal to, such as `NotIn` or `Exists`, may match nearly all objects.
    """
    names = match.namespaces.names if match.namespaces else ()
    if names and not any(map(is_glob, names)):
        return True
    labels = match.labels
    return labels is not None and (
        bool(labels.match_labels) or any(one.operator == "In" for one in labels.match_expressions)
    )


def find_usage_kinds(word: str) -> list[KindRule]:
    """The kinds that a word in the match of a rule with `unused` names.

    Raises:
        ValueError: The word is a glob, or names another kind.
    """
    expected = f"expected secrets or configmaps beside unused, got {quote(word)}"
    try:
        return [*USAGE_KINDS.find_by_name(word)]
    except ValueError:
        raise ValueError(expected) from None


def is_opted_in(match: Match, namespace: Namespace) -> bool:
    """Return whether unused objects of a namespace may be deleted by a rule that matches it.

    The annotation of the namespace takes precedence. Without it, the rule has to say for which namespaces it is meant.
    """
    if namespace.unused is not None:
        return namespace.unused
    return match.namespaces is not None
