"""Argo Workflows: the ConfigMap of its controller, and the TTLs of workflows and templates.

Source: argoproj/argo-workflows docs/workflow-controller-configmap.md, docs/default-workflow-specs.md,
workflow/gccontroller/gc_controller.go, config/config.go.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from shared.cli.importers.imported import (
    ClusterReads,
    Imported,
    ImportedConfigError,
    Source,
    expect_count,
    expect_mapping,
    parse_embedded,
)
from shared.core.values.objects import quote
from shared.core.values.timing import format_duration, parse_duration, parse_go_duration

CONFIG = "workflow-controller-configmap"
WORKFLOWS = "workflows.argoproj.io"

WANTED = ClusterReads(
    collections=(
        ("v1/configmaps", "ConfigMap", {"fieldSelector": f"metadata.name={CONFIG}"}),
        ("argoproj.io/v1alpha1/cronworkflows", "CronWorkflow", {}),
        ("argoproj.io/v1alpha1/workflowtemplates", "WorkflowTemplate", {}),
        ("argoproj.io/v1alpha1/clusterworkflowtemplates", "ClusterWorkflowTemplate", {}),
    )
)

_SPECS = {
    "Workflow": "spec",
    "WorkflowTemplate": "spec",
    "ClusterWorkflowTemplate": "spec",
    "CronWorkflow": "spec.workflowSpec",
}
_PHASES = {"completed": "Succeeded", "failed": "Failed", "errored": "Error"}
_PHASE = 'has(object.status) && has(object.status.phase) && object.status.phase {} "{}"'


def read(sources: Sequence[Source], imported: Imported) -> None:
    """Add rules for the defaults and the retention of the controller.

    Raises:
        ImportedConfigError: The ConfigMap is invalid.
    """
    imported.differences += [
        "both count from the finish; Argo deletes a second after the TTL, and this program when the TTL is over",
        "Argo acts on `ttlStrategy` of a Workflow, too: an annotation with a longer TTL has no effect",
    ]
    for source in sources:
        if source.kind == "ConfigMap" and source.get("metadata.name") == CONFIG:
            _import_config(source, imported)
        elif path := _SPECS.get(source.kind):
            if source.get(f"{path}.ttlStrategy") is not None:
                imported.note(source.at(f"{path}.ttlStrategy"), "needs no rule: it is read from each Workflow")
            if source.get(f"{path}.podGC") is not None:
                imported.note(source.at(f"{path}.podGC"), "left to Argo: no rule is written for a single Workflow")


def _import_config(source: Source, imported: Imported) -> None:
    data = expect_mapping(source.get("data") or {}, source.at("data"))
    place = source.at("data")
    if "config" in data:  # all settings may be in one key
        place = f"{source.at('data.config')}: config"
        data = parse_embedded(data["config"], source.at("data.config"))
    defaults = _setting(data, "workflowDefaults", place)
    spec = expect_mapping(defaults.get("spec") or {}, f"{place}.workflowDefaults.spec")
    _import_strategy(spec.get("ttlStrategy"), f"{place}.workflowDefaults.spec.ttlStrategy", imported)
    _import_pod_gc(spec.get("podGC"), f"{place}.workflowDefaults.spec.podGC", imported)
    _import_retention(_setting(data, "retentionPolicy", place), f"{place}.retentionPolicy", imported)
    if data.get("persistence"):
        imported.note(
            f"{place}.persistence", "left to Argo: a Workflow that waits for its archive counts as unfinished"
        )


def _setting(data: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    value = data.get(name)
    if isinstance(value, str):
        return parse_embedded(value, f"{place}.{name}")
    return expect_mapping(value or {}, f"{place}.{name}")


def _import_strategy(strategy: Any, place: str, imported: Imported) -> None:
    """Add rules for a ttlStrategy: phase Error has only the TTL of completion."""
    if strategy is None:
        return
    strategy = expect_mapping(strategy, place)
    names = ("secondsAfterCompletion", "secondsAfterSuccess", "secondsAfterFailure")
    always, succeeded, failed = (expect_count(strategy.get(name), f"{place}.{name}") for name in names)
    by_outcome = {
        outcome: _ttl(seconds)
        for outcome, seconds in (
            ("succeeded", succeeded if succeeded is not None else always),
            ("failed", failed if failed is not None else always),
        )
        if seconds is not None
    }
    is_special = failed is not None and failed != always
    if is_special and always is not None:
        match = {"kinds": [WORKFLOWS]}
        imported.add("argo-defaults-error", match, when=_PHASE.format("==", "Error"), ttl=_ttl(always))
    if by_outcome:
        when = {"when": _PHASE.format("!=", "Error")} if is_special else {}
        imported.add("argo-defaults", {"kinds": [WORKFLOWS]}, **when, ttl=by_outcome)


def _import_retention(retention: dict[str, Any], place: str, imported: Imported) -> None:
    for name, phase in _PHASES.items():
        most = expect_count(retention.get(name), f"{place}.{name}")
        if most:
            imported.add(
                f"argo-retention-{name}",
                {"kinds": [WORKFLOWS]},
                when=_PHASE.format("==", phase),
                maxCount=most,
            )
            imported.note(
                f"{place}.{name}", f"Argo keeps {most} in the whole cluster; the rule keeps {most} in each namespace"
            )
        elif most == 0:
            imported.note(f"{place}.{name}", "left out: 0 has no equivalent; set a `ttl` of 0s for this phase")


def _import_pod_gc(pod_gc: Any, place: str, imported: Imported) -> None:
    if pod_gc is None:
        return
    pod_gc = expect_mapping(pod_gc, place)
    strategy = pod_gc.get("strategy")
    if strategy != "OnWorkflowCompletion":
        imported.note(f"{place}.strategy", f"{quote(strategy)}: no equivalent; leave it to Argo")
        return
    match: dict[str, Any] = {"kinds": ["pods"], "owners": [{"kind": "Workflow"}]}
    if pod_gc.get("labelSelector"):
        match["labels"] = expect_mapping(pod_gc["labelSelector"], f"{place}.labelSelector")
    imported.add("argo-pods", match, ttl=_delay(pod_gc.get("deleteDelayDuration"), f"{place}.deleteDelayDuration"))
    imported.note(
        place, "the TTL of a Pod counts from the finish of the Pod; it is kept until its Workflow has finished"
    )


def _delay(value: Any, place: str) -> str:
    if value is None:
        return "0s"
    try:
        return format_duration(parse_duration(value) if str(value).isdigit() else parse_go_duration(value))
    except ValueError as error:
        raise ImportedConfigError(f"{place}: {error}") from None


def _ttl(seconds: int) -> str:
    return format_duration(timedelta(seconds=seconds))
