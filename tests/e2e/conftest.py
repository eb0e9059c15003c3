"""`make e2e`: the cluster that KUBECONFIG names, with Knative Eventing; other test runs pass these tests over."""

import os
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.installation import DATA_PLANE, FUNCTIONS, log_of, log_of_data_plane, ttl

LOG_CHARACTERS_MAX = 3_000
"""Of each log, in the report of a failed test."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests unless a cluster is given."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "E2E_IMAGE" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="needs a cluster to work on: KUBECONFIG=... make e2e"))
        elif here in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what `doctor`, Knative and the functions report to the report of a failed test: the cluster ends with it."""
    report = yield
    if report.failed and Path(__file__).parent in item.path.parents:
        with suppress(Exception):
            report.sections.append(("doctor", ttl("doctor").stdout))
            for deployment in DATA_PLANE:
                report.sections.append((f"log of {deployment}", log_of_data_plane(deployment)[-LOG_CHARACTERS_MAX:]))
            for function in FUNCTIONS:
                report.sections.append((f"log of {function}", log_of(function)[-LOG_CHARACTERS_MAX:]))
    return report
