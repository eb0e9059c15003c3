"""Tekton: the ConfigMaps of the pruner, its annotation, and the operator's pruner: `spec.pruner` of a TektonConfig.

Source: tektoncd/pruner pkg/config/config.go, docs/tutorials; tektoncd/operator docs/TektonConfig.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from shared.cli.importers.imported import (
    ClusterReads,
    Imported,
    ImportedConfigError,
    Source,
    expect_count,
    expect_list,
    expect_mapping,
    expect_mappings,
    expect_text,
    parse_embedded,
)
from shared.core.values.objects import get_text, quote
from shared.core.values.timing import format_duration

GLOBAL, GLOBAL_KEY = "tekton-pruner-default-spec", "global-config"
OF_NAMESPACE, NAMESPACE_KEY = "tekton-pruner-namespace-spec", "ns-config"
TTL = "pruner.tekton.dev/ttlSecondsAfterFinished"
LEVELS = ("global", "namespace", "resource")

WANTED = ClusterReads(
    collections=(
        ("v1/configmaps", "ConfigMap", {"fieldSelector": f"metadata.name={GLOBAL}"}),
        ("v1/configmaps", "ConfigMap", {"fieldSelector": f"metadata.name={OF_NAMESPACE}"}),
        ("operator.tekton.dev/v1alpha1/tektonconfigs", "TektonConfig", {}),
    )
)

_RUNS = {
    "pipelineRuns": ("pipelineruns.tekton.dev", "tekton.dev/pipeline", "pr"),
    "taskRuns": ("taskruns.tekton.dev", "tekton.dev/task", "tr"),
}
_NEVER = -1

_OPERATOR_KINDS = {
    "pipelinerun": ("pipelineruns.tekton.dev", "tekton.dev/pipeline"),
    "taskrun": ("taskruns.tekton.dev", "tekton.dev/task"),
}


@dataclass(frozen=True, slots=True)
class _Target:
    """The runs that an entry of the configuration is about.

    Attributes:
        place: Where the entry is.
        name: Of its rules.
        match: Beside the kinds.
        runs: Keys of `_RUNS`.
    """

    place: str
    name: str
    match: dict[str, Any]
    runs: tuple[str, ...] = ("pipelineRuns", "taskRuns")


def read(sources: Sequence[Source], imported: Imported) -> None:
    """Add rules for the entries of the configuration, the most specific ones first.

    Raises:
        ImportedConfigError: The configuration is invalid.
    """
    imported.differences += [
        "both count from the finish; a run that failed before it started is kept by the pruner, and deleted here",
        "a TaskRun of a PipelineRun is deleted with its PipelineRun, as with the pruner",
        "a history limit counts all runs of a namespace with that outcome, also those that have an entry of their own",
    ]
    configs = {one.place: one for one in sources if one.kind == "ConfigMap"}.values()
    own = [one for one in configs if get_text(one.document, "metadata.name") == OF_NAMESPACE]
    shared = [one for one in configs if get_text(one.document, "metadata.name") == GLOBAL]
    read_configs = [(one, parse_embedded(_value(one, GLOBAL_KEY), one.at(f"data.{GLOBAL_KEY}"))) for one in shared]
    level = next((_level(config, one.at(f"data.{GLOBAL_KEY}")) for one, config in read_configs), None) or LEVELS[-1]
    for source in own:
        place = source.at(f"data.{NAMESPACE_KEY}")
        config, namespace = (
            parse_embedded(_value(source, NAMESPACE_KEY), place),
            get_text(source.document, "metadata.namespace"),
        )
        if level == LEVELS[0]:
            imported.note(place, "has no effect: enforcedConfigLevel of the global configuration is global")
        else:
            _import_namespace(config, namespace, place, imported, has_selectors=True)
    for source, config in read_configs:
        _import_global(config, source.at(f"data.{GLOBAL_KEY}"), level, imported)
    _note_runs(sources, imported)
    for source in sources:
        if source.kind == "TektonConfig":
            _import_operator(source, imported)


def _value(source: Source, key: str) -> Any:
    return expect_mapping(source.get("data") or {}, source.at("data")).get(key, "")


def _level(config: dict[str, Any], place: str) -> str | None:
    level = config.get("enforcedConfigLevel")
    if level is not None and level not in LEVELS:
        expected = ", ".join(LEVELS)
        raise ImportedConfigError(f"{place}: enforcedConfigLevel: expected one of {expected}, got {quote(level)}")
    return level


def _import_global(config: dict[str, Any], place: str, level: str, imported: Imported) -> None:
    namespaces = expect_mapping(config.get("namespaces") or {}, f"{place}: namespaces")
    for name, spec in namespaces.items():
        at = f"{place}: namespaces.{name}"
        own = expect_mapping(spec or {}, at)
        if (_level(own, at) or level) == LEVELS[0]:
            imported.note(at, "has no effect: enforcedConfigLevel is global")
        else:
            _import_namespace(own, str(name), at, imported, has_selectors=False)
    _import_limits(config, _Target(place, "tekton", {}), imported)


def _import_namespace(
    spec: dict[str, Any], namespace: str, place: str, imported: Imported, *, has_selectors: bool
) -> None:
    whole = _Target(place, f"tekton-{namespace}", {"namespaces": {"names": [namespace]}})
    for runs in _RUNS:
        entries = list(expect_mappings(spec.get(runs), f"{place}: {runs}"))
        # A name takes precedence over selectors.
        for at, entry in sorted(entries, key=lambda one: "name" not in one[1]):
            for target in _targets(entry, replace(whole, place=at, runs=(runs,))):
                if "name" not in entry and target.match != whole.match and not has_selectors:
                    imported.note(at, f"has no effect: the pruner reads selectors only in a ConfigMap {OF_NAMESPACE}")
                else:
                    _import_limits(entry, target, imported)
    _import_limits(spec, whole, imported)


def _targets(entry: dict[str, Any], whole: _Target) -> Iterator[_Target]:
    """The runs of an entry: by the name of their pipeline or task, or by each of its selectors."""
    if "name" in entry:
        name, label = expect_text(entry["name"], f"{whole.place}.name"), _RUNS[whole.runs[0]][1]
        match = {**whole.match, "labels": {"matchLabels": {label: name}}}
        yield replace(whole, name=f"{whole.name}-{name}", match=match)
        return
    for place, selector in expect_mappings(entry.get("selector"), f"{whole.place}.selector"):
        labels = expect_mapping(selector.get("matchLabels") or {}, f"{place}.matchLabels")
        annotations = expect_mapping(selector.get("matchAnnotations") or {}, f"{place}.matchAnnotations")
        match = {
            **whole.match,
            **({"labels": {"matchLabels": labels}} if labels else {}),
            **({"annotations": annotations} if annotations else {}),
        }
        name = "-".join(map(str, [*labels.values(), *annotations.values()]))
        yield replace(whole, place=place, name=f"{whole.name}-{name}", match=match)


def _import_limits(config: dict[str, Any], target: _Target, imported: Imported) -> None:
    """Add rules for the TTL and the history limits of an entry."""
    names = ("ttlSecondsAfterFinished", "historyLimit", "successfulHistoryLimit", "failedHistoryLimit")
    ttl, both, succeeded, failed = (
        expect_count(config.get(name), f"{target.place}: {name}", least=_NEVER if name == names[0] else 0)
        for name in names
    )
    limits = {
        "succeeded": succeeded if succeeded is not None else both,
        "failed": failed if failed is not None else both,
    }
    for runs in target.runs:
        kind, _, short = _RUNS[runs]
        match: dict[str, Any] = {"kinds": [kind], **target.match}
        if runs == "taskRuns":  # those of a PipelineRun belong to it
            match["owners"] = []
        name = f"{target.name}-{short}"
        for outcome, most in limits.items():
            if most is not None:
                # Only the runs of one rule are counted together, so each outcome has a rule.
                limit = {"maxCount": most} if most else {"ttl": "0s"}
                imported.add(f"{name}-{outcome}", match, when=f'outcome == "{outcome}"', **limit)
        if ttl == _NEVER and any(limits.values()):
            imported.note(
                f"{target.place}: {names[0]}", "-1 keeps the runs here, so their history limits have no effect"
            )
        if ttl is not None:
            lasting = "never" if ttl == _NEVER else format_duration(timedelta(seconds=ttl))
            imported.add(name, match, ttl=lasting)


def _note_runs(sources: Sequence[Source], imported: Imported) -> None:
    for source in sources:
        value = (source.get("metadata.annotations") or {}).get(TTL) if source.kind.endswith("Run") else None
        if value is not None:
            text = "the pruner writes it from its configuration"
            cure = "; set ttlafterfinished.dev/ttl: never on the object" if str(value) == str(_NEVER) else ""
            imported.note(source.at(f"metadata.annotations.{TTL}"), f"not taken over: {text}{cure}")


def _import_operator(source: Source, imported: Imported) -> None:
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
        if word not in _OPERATOR_KINDS:
            imported.note(f"{place}.resources.{number}", f"{quote(word)}: expected pipelinerun or taskrun; left out")
            continue
        kind, label = _OPERATOR_KINDS[word]
        match: dict[str, Any] = {"kinds": [kind], **({"owners": []} if word == "taskrun" else {})}
        fields: dict[str, Any] = {"ttl": format_duration(timedelta(minutes=minutes)) if minutes else "0s"}
        if keep:
            by = {"label": label} if pruner.get("prune-per-resource") else "namespace"
            fields |= {"keepLast": keep, "keepLastOutcomes": "together", "keepLastBy": by}
        if keep or minutes:
            imported.add(f"tekton-operator-{word}", match, **fields)
