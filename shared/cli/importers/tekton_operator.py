"""The pruner of the Tekton operator: `spec.pruner` of a TektonConfig.

Source: tektoncd/operator docs/TektonConfig.md.
"""

from datetime import timedelta
from typing import Any

from shared.cli.importers.imported import Imported, Source, expect_count, expect_list, expect_mapping
from shared.core.objects import quote
from shared.core.ttl.durations import format_duration

KINDS = {
    "pipelinerun": ("pipelineruns.tekton.dev", "tekton.dev/pipeline"),
    "taskrun": ("taskruns.tekton.dev", "tekton.dev/task"),
}


def import_operator(source: Source, imported: Imported) -> None:
    """Add rules for `keep` or `keep-since`.

    Raises:
        ImportedConfigError: The configuration is invalid.
    """
    place = source.at("spec.pruner")
    pruner = expect_mapping(source.get("spec.pruner") or {}, place)
    if not pruner or pruner.get("disabled") is True:
        imported.note(place, "nothing is imported: the pruner is not set, or disabled")
        return
    keep = expect_count(pruner.get("keep"), f"{place}.keep", least=1)
    minutes = expect_count(pruner.get("keep-since"), f"{place}.keep-since", least=1)
    if pruner.get("schedule"):
        imported.note(
            f"{place}.schedule", f"{quote(pruner['schedule'])} is not needed: a run is deleted when it is due"
        )
    for number, word in enumerate(expect_list(pruner.get("resources"), f"{place}.resources") or ["pipelinerun"]):
        if word not in KINDS:
            imported.note(f"{place}.resources.{number}", f"{quote(word)}: expected pipelinerun or taskrun; left out")
            continue
        kind, label = KINDS[word]
        match: dict[str, Any] = {"kinds": [kind], **({"owners": []} if word == "taskrun" else {})}
        fields: dict[str, Any] = {"ttl": format_duration(timedelta(minutes=minutes)) if minutes else "0s"}
        if keep:
            by = {"label": label} if pruner.get("prune-per-resource") else "namespace"
            fields |= {"keepLast": keep, "keepLastOutcomes": "together", "keepLastBy": by}
        if keep or minutes:
            imported.add(f"tekton-operator-{word}", match, **fields)
