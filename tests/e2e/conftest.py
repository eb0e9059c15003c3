"""`make e2e`: the cluster that KUBECONFIG names, with Knative Eventing; other test runs pass these tests over."""

import json
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.cluster import kubectl, server_pid
from tests.e2e.installation import (
    DATA_PLANE,
    FUNCTIONS,
    KNATIVE,
    PING_ADAPTER,
    log_of,
    log_of_data_plane,
    log_of_pods_here,
    ttl,
)
from tests.e2e.rights import audit_log
from tests.e2e.witness import Witness, witnessed

WINDOW = {"stable-window": "6s", "scale-to-zero-grace-period": "6s"}
"""Of Knative's autoscaler, in place of 60 and 30 seconds."""

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
        for title, read in _logs():
            with suppress(Exception):
                report.sections.append((title, read()[-LOG_CHARACTERS_MAX:]))
    return report


def _logs() -> Iterator[tuple[str, Callable[[], str]]]:
    """What may show why an event did not arrive, in the order of its way, with the titles of the sections."""
    yield "log of the machine's Pods", log_of_pods_here
    yield "Leases of Knative Eventing", lambda: kubectl("-n", KNATIVE, "get", "leases", "-o", "wide")
    for deployment in (PING_ADAPTER, *DATA_PLANE):
        yield f"log of {deployment}", partial(log_of_data_plane, deployment)
    for function in (*FUNCTIONS, "deadletter", "usage"):
        yield f"log of {function}", partial(log_of, function)


@pytest.fixture(scope="module")
def witness(request: pytest.FixtureRequest) -> Iterator[Witness]:
    """Record every deletion in the module's namespace; at the end, check that none was early or unwanted."""
    if server_pid() is None or audit_log() is None:
        assert not os.environ.get("CI")
        pytest.skip("needs Pods that are processes of this machine, and the audit log: see audit-policy.yaml")
    with witnessed(request.module.NAMESPACE, request.module.PATHS) as seen:
        yield seen


@pytest.fixture(scope="module")
def short_windows() -> Iterator[None]:
    """Let Knative Serving, where it is, end the Pods of a former revision, or without requests, after seconds."""
    scale = ("-n", "knative-serving", "patch", "configmap", "config-autoscaler", "--type=merge", "-p")
    if "E2E_SERVING" in os.environ:
        kubectl(*scale, json.dumps({"data": WINDOW}))
    yield
    if "E2E_SERVING" in os.environ:
        kubectl(*scale, json.dumps({"data": dict.fromkeys(WINDOW)}))
