"""k8s-ttl-controller of TwiN: an annotation with a TTL from the creation, or from the last refresh.

Source: TwiN/k8s-ttl-controller README.md, main.go.
"""

from collections.abc import Sequence

from shared.cli.importers.imported import FROM_CREATION, ClusterReads, Imported, Source, import_annotated
from shared.core.values.objects import list_mappings, quote
from shared.core.values.timing import format_duration, parse_duration

TTL = "k8s-ttl-controller.twin.sh/ttl"
REFRESHED = "k8s-ttl-controller.twin.sh/refreshed-at"

WANTED = ClusterReads(every_kind={})


def read(sources: Sequence[Source], imported: Imported) -> None:
    """Add a rule for each TTL that objects have."""
    imported.differences += [
        FROM_CREATION,
        "an object that never finishes, such as a Deployment, is kept",
    ]
    import_annotated(sources, imported, field="annotations", key=TTL, name="ttl", read=_read_ttl)
    for source in sources:
        for container in list_mappings(source.document, "spec.template.spec.containers"):
            if any(one.get("name") == "API_RESOURCES_TO_WATCH" for one in list_mappings(container, "env")):
                imported.note(source.place, "API_RESOURCES_TO_WATCH is not a part of a policy: set TTL_KINDS")
        annotations = source.get("metadata.annotations")
        if isinstance(annotations, dict) and REFRESHED in annotations:
            place = source.at(f"metadata.annotations.{REFRESHED}")
            imported.note(place, "no equivalent: the TTL counts from the finish; set a longer TTL instead")


def _read_ttl(value: str) -> str:
    if value.isdigit():
        raise ValueError(f"expected a TTL with a unit such as 30m, 24h or 7d, got {quote(value)}")
    return format_duration(parse_duration(value))
