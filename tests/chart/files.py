"""The files of the chart: Chart.yaml, the overlays, the README, and what `templates` and `schema` make."""

import json
from pathlib import Path
from typing import Any

import yaml

from shared import __version__
from shared.installation.kubernetes_versions import OLDEST, describe_version
from tests.chart import templates
from tests.chart.builds import EXCLUSIVE
from tests.chart.kustomizations import GENERATED, component, selectable
from tests.chart.schema import schema
from tests.manifests.test_manifests import KNATIVE, OVERLAYS, build, of_kind
from tests.reference.texts import table

CHART = KNATIVE / "chart"
BY_HAND = {"values.yaml", ".helmignore", "templates/_helpers.tpl", "templates/NOTES.txt"}
HEADER = "# Generated from the kustomizations of knative/ by `make chart`. Do not edit.\n"
_README = Path(__file__).parent / "README.template.md"
_SCHEDULE = "*/10 * * * *"


def render() -> dict[str, str]:
    """The text of each generated file, by its path in the chart."""
    return {
        **render_from_code(),
        "components.yaml": HEADER + _dump(_components()),
        "README.md": _README.read_text()
        .replace("{components}", _table())
        .replace("{oldest}", describe_version(OLDEST)),
        **{f"templates/{name}": text for name, text in templates.render().items()},
    }


def render_from_code() -> dict[str, str]:
    """The files that depend on code beside the generator, such as the settings. They need no kubectl."""
    return {
        "Chart.yaml": HEADER + _dump(_chart()),
        "values.schema.json": json.dumps(schema(["base", *overlays()]), indent=2) + "\n",
    }


def _chart() -> Any:
    return {
        "apiVersion": "v2",
        "name": "ttl-after-finished",
        "description": "Every finished Kubernetes object, gone on time: Jobs, Pods, TrainJobs, any kind.",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": f">={describe_version(OLDEST)}.0-0",
        "home": "https://github.com/ttl-after-finished/ttl-after-finished",
        "sources": ["https://github.com/ttl-after-finished/ttl-after-finished"],
        "keywords": ["ttl", "cleanup", "garbage-collection", "jobs", "knative", "cloudevents"],
    }


def overlays() -> list[str]:
    """The overlays of the chart."""
    return [name for name in OVERLAYS if name != "cloud-run"]


def _components() -> Any:
    """What Helm has to know of kustomize's files."""
    return {
        "overlays": {"base": _overlay([], {}, _SCHEDULE), **{name: _read_overlay(name) for name in overlays()}},
        "configMaps": dict(GENERATED),
        "exclusive": [sorted(pair) for pair in EXCLUSIVE],
    }


def _read_overlay(name: str) -> Any:
    body = yaml.safe_load((KNATIVE / "overlays" / name / "kustomization.yaml").read_text())
    names = [one.removeprefix("../../components/") for one in body["components"]]
    (settings,) = body["configMapGenerator"]
    pairs = [one.split("=", 1) for one in settings["literals"]]
    sources = of_kind(build(KNATIVE / "overlays" / name), "PingSource")
    schedule = sources["sweep"]["spec"]["schedule"] if "sweep" in sources else _SCHEDULE
    return _overlay([one for one in names if one != "release"], dict(pairs), schedule)


def _overlay(names: list[str], settings: dict[str, str], schedule: str) -> Any:
    return {"components": names, "settings": settings, "sweepSchedule": schedule}


def _table() -> str:
    rows = []
    for name in selectable():
        used = [overlay for overlay in overlays() if name in _read_overlay(overlay)["components"]]
        rows.append((f"`{name}`", component(name).purpose, ", ".join(f"`{one}`" for one in used)))
    return table(("component", "", "in the overlays"), rows)


def _dump(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=120)
