"""The alerts and the dashboard, checked by promtool, against the series that real processes show; and the runbook."""

import re

import pytest

from tests.builders import ROOT
from tests.docs.test_links import anchors
from tests.manifests.alert_cases import CASES, AlertCase
from tests.monitoring import DASHBOARD, GROUPS, QUERIES, RULES, SCRAPED, parse_series, read_recorded
from tests.promtool import check_rules, needs_promtool, run_tests

RUNBOOK = ROOT / "docs/runbook.md"
LINK = "https://github.com/ttl-after-finished/ttl-after-finished/blob/main/docs/runbook.md"
SHOWN = read_recorded()
"""Series of real processes."""

_SELECTOR = re.compile(r"\b((?:ttl|process)_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=|!=)"([^"]*)"')


@pytest.mark.verify
@needs_promtool
def test_promtool_accepts_the_alerts(tmp_path):
    assert check_rules(GROUPS, tmp_path) == ""


@pytest.mark.verify
@needs_promtool
def test_promtool_accepts_every_query_of_the_dashboard(tmp_path):
    rules = [
        {"record": f"dashboard:query{number}", "expr": expr.replace("$__rate_interval", "5m")}
        for number, (_, expr) in enumerate(QUERIES)
    ]
    assert check_rules([{"name": "dashboard", "rules": rules}], tmp_path) == ""


@pytest.mark.verify
@needs_promtool
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_fires_and_does_not_fire_earlier(rule, tmp_path):
    case = CASES[rule["alert"]]
    fired = {
        "exp_labels": {**rule["labels"], **case.labels},
        "exp_annotations": {**rule["annotations"], "summary": case.summary},
    }
    test = {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "alert_rule_test": [
            {"alertname": rule["alert"], "eval_time": f"{case.silent}m", "exp_alerts": []},
            {"alertname": rule["alert"], "eval_time": f"{case.fires}m", "exp_alerts": [fired]},
        ],
    }
    assert run_tests(GROUPS, [test], tmp_path) == ""


@pytest.mark.verify
@needs_promtool
def test_absent_sweeps_are_an_alert(tmp_path):
    (rule,) = (one for one in RULES if one["alert"] == "TtlSweepMissing")
    summary = "No sweep has listed all of any kind for three intervals. Objects that events missed are kept."
    fired = {"exp_labels": rule["labels"], "exp_annotations": {**rule["annotations"], "summary": summary}}
    test = {
        "interval": "1m",
        "input_series": [{"series": "up", "values": "1x30"}],
        "alert_rule_test": [{"alertname": "TtlSweepMissing", "eval_time": "5m", "exp_alerts": [fired]}],
    }
    assert run_tests(GROUPS, [test], tmp_path) == ""


@pytest.mark.parametrize(("name", "case"), CASES.items(), ids=list(CASES))
def test_case_has_series_of_real_processes(name: str, case: AlertCase):
    for text in case.series:
        metric, labels = parse_series(text)
        scraped = frozenset(label for label in labels if label[0] == "pod")
        assert is_shown(metric, labels - scraped), text


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[f"{title}-{n}" for n, (title, _) in enumerate(QUERIES)])
def test_every_selector_of_a_query_finds_a_series_of_a_real_process(title, query):
    selectors = [(found[1], _MATCHER.findall(found[2] or "")) for found in _SELECTOR.finditer(query)]
    assert selectors
    for metric, matchers in selectors:
        found = [dict(labels) for name, labels in SHOWN if name == metric]
        kept = [labels for labels in found if all(matches(labels, *one) for one in matchers)]
        assert kept, f"{title}: no process shows {metric} {matchers}"
        grouped = {
            label.strip() for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query) for label in group.split(",")
        }
        assert grouped <= SCRAPED.union(*found) or len(selectors) > 1, title


def matches(labels: dict[str, str], name: str, operator: str, value: str) -> bool:
    """Whether the labels of a series fulfil a matcher; `namespace` comes with the scrape."""
    return name == "namespace" or (labels.get(name, "") == value) == (operator == "=")


def is_shown(metric: str, labels: frozenset[tuple[str, str]]) -> bool:
    """Whether a real process shows the series."""
    return (metric, labels) in SHOWN


# What an operator reads


def test_every_alert_has_one_case_and_one_section_of_the_runbook():
    names = [rule["alert"] for rule in RULES]
    assert list(CASES) == names
    assert re.findall(r"^## (Ttl\w+)$", RUNBOOK.read_text(), re.MULTILINE) == names


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_link_of_an_alert_leads_to_its_section(rule):
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert page == LINK
    assert anchor == rule["alert"].lower()
    assert anchor in anchors(RUNBOOK.read_text())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_command_of_an_alert_is_in_its_section(rule):
    section = RUNBOOK.read_text().partition(f"## {rule['alert']}\n")[2].partition("\n## ")[0]
    for command in rule["annotations"]["runbook"].split("; then "):
        assert command in section, f"{rule['alert']}: {command}"


def test_dashboard_shows_every_metric_of_an_alert():
    shown = {name for panel in DASHBOARD["panels"] for one in panel["targets"] for name in metrics_of(one["expr"])}
    alerted = {name for rule in RULES for name in metrics_of(rule["expr"])}
    assert alerted - shown == {"ttl_sweep_interval_seconds"}  # a limit, not a measurement


def metrics_of(query: str) -> set[str]:
    return {metric for metric, _ in _SELECTOR.findall(query)}


def test_dashboard_links_to_the_runbook():
    assert [link["url"] for link in DASHBOARD["links"]] == [LINK]
