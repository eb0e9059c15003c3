"""The summary of the tiers at the end of `make test`."""

import pytest

from tests.builders import ROOT
from tests.tiers import SLOW, start_order, summarize, tier_of


@pytest.mark.parametrize(
    ("nodeid", "tier"),
    [
        ("tests/unit/core/test_decide.py::test_x[a/b::c]", "unit"),
        ("tests/crash/test_timers_crash.py::TestKill::test_x", "crash"),
        ("tests/test_loose.py::test_x", "other"),
        ("elsewhere/unit/test_x.py::test_x", "other"),
    ],
)
def test_tier_is_the_folder_below_tests(nodeid, tier):
    assert tier_of(nodeid) == tier


def test_summary_lists_the_slowest_tier_first_and_equal_tiers_by_name():
    assert summarize({"unit": 61.26, "crash": 3.0, "contract": 100.04, "b": 3.0}) == [
        "   100.0s contract",
        "    61.3s unit",
        "     3.0s b",
        "     3.0s crash",
    ]


def test_summary_is_empty_if_no_test_ran():
    assert summarize({}) == []


def test_slow_tiers_start_first():
    nodeids = [
        f"tests/{tier}/test_x.py::test_y" for tier in ("unit", "crash", "functions", "simulation", "integration")
    ]
    ordered = [tier_of(nodeid) for nodeid in sorted(nodeids, key=start_order)]
    assert ordered == ["simulation", "integration", "crash", "unit", "functions"]


def test_slow_tiers_exist():
    assert [tier for tier in SLOW if not (ROOT / "tests" / tier).is_dir()] == []
