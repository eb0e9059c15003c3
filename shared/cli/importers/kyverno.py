"""Kyverno: the TTL label, CleanupPolicy, ClusterCleanupPolicy and DeletingPolicy.

Source: kyverno/website content/en/docs/writing-policies/cleanup.md, docs/policy-types/deleting-policy;
kyverno/kyverno pkg/controllers/ttl/utils.go.
"""

from collections.abc import Sequence
from datetime import timedelta

from shared.cli.importers.annotated import import_annotated, note_absolute
from shared.cli.importers.imported import Imported, Source
from shared.cli.importers.kyverno_cleanup import import_cleanup
from shared.cli.importers.kyverno_deleting import import_deleting
from shared.cli.importers.sources import ClusterReads
from shared.core.ttl.durations import format_duration, parse_duration, parse_go_duration

CLEANUP = ("ClusterCleanupPolicy", "CleanupPolicy")
DELETING = ("DeletingPolicy", "NamespacedDeletingPolicy")
TTL = "cleanup.kyverno.io/ttl"

WANTED = ClusterReads(
    collections=(
        *(
            (f"kyverno.io/{version}/{kind.lower()[:-1]}ies", kind, {})
            for version in ("v2", "v2beta1")
            for kind in CLEANUP
        ),
        *(
            (f"policies.kyverno.io/{version}/{kind.lower()[:-1]}ies", kind, {})
            for version in ("v1", "v1beta1", "v1alpha1")
            for kind in DELETING
        ),
    ),
    every_kind={"labelSelector": TTL},
)


def read(sources: Sequence[Source], imported: Imported) -> None:
    """Add a rule for each TTL that objects have, and for each policy that a rule can express.

    Raises:
        ImportedConfigError: A policy is invalid.
    """
    imported.differences += [
        "the TTL counts from the finish of an object, not from its creation or from when Kyverno saw the label",
        "a rule deletes an object when it is due, so up to one period of the schedule earlier than a policy of Kyverno",
        "an object that has not finished is kept, also if a policy of Kyverno matches it",
    ]
    relative = [one for one in sources if not _is_absolute(one)]
    import_annotated(relative, imported, field="labels", key=TTL, name="kyverno", read=read_ttl)
    for source in sources:
        if _is_absolute(source):
            note_absolute(imported, source, field="labels", key=TTL)
        if source.kind in CLEANUP:
            import_cleanup(source, imported)
        elif source.kind in DELETING:
            import_deleting(source, imported)


def read_ttl(value: str) -> str:
    """Read a relative TTL of Kyverno.

    Raises:
        ValueError: It is no duration.
    """
    try:
        found = parse_duration(value)
    except ValueError:
        found = parse_go_duration(value)
    return format_duration(max(found, timedelta(0)))


def _is_absolute(source: Source) -> bool:
    value = str((source.get("metadata.labels") or {}).get(TTL, ""))
    return len(value) >= len("2023-10-04") and value[:4].isdigit() and value[4:5] == "-"
