"""The alerts, the dashboard, and the series that real processes of the functions have shown."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.builders import ROOT

FOLDER = ROOT / "knative/components/prometheus"
GROUPS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules.yaml").read_text())["spec"]["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
QUERIES = [
    *((rule["alert"], rule["expr"]) for rule in RULES),
    *((panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *((one["name"], one["expr"]) for one in DASHBOARD["annotations"]["list"]),
]
"""Each query with the alert, the panel or the annotation that has it."""

SCRAPED = {"namespace", "pod", "container", "function", "le"}
"""Labels that come with the scrape, or with a histogram's buckets."""

QUERIED = {name for _, query in QUERIES for name in re.findall(r"\b(?:ttl|process)_\w+", query)}
"""The metrics that the queries read."""

RECORDED = ROOT / "tests/fixtures/metrics"
"""A file for each function: the series of `QUERIED` of its process, recorded by tests/integration/test_metrics.py."""

_SERIES = re.compile(r"^(\w+)(?:\{(.*)\})?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Series = tuple[str, frozenset[tuple[str, str]]]
"""The name of a metric, and the labels with their values."""


def parse_series(text: str) -> Series:
    """Parse a series, such as `ttl_stopped` or `ttl_missed_by_events_total{kind="Job"}`."""
    found = _SERIES.match(text)
    assert found, text
    return found[1], frozenset(_LABEL.findall(found[2] or ""))


def read_recorded(folder: Path = RECORDED) -> set[Series]:
    """The series of all functions, with the label `function` that a scrape adds."""
    return {
        (name, labels if dict(labels).get("function") else labels | {("function", file.stem)})
        for file in sorted(folder.glob("*.prom"))
        for name, labels in map(parse_series, file.read_text().splitlines())
    }
