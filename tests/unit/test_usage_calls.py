"""The measurement of the benchmark of `usage` from an API server's audit log."""

from datetime import UTC, datetime, timedelta

from tests.benchmarks.usage_calls import lists_of, windows_of

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def call(verb, uri, seconds, *, namespace="ci", resource="pods", code=200):
    received_at = START + timedelta(seconds=seconds)
    return {
        "verb": verb,
        "requestURI": uri,
        "objectRef": {"resource": resource, "namespace": namespace},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": received_at.isoformat(),
        "stageTimestamp": (received_at + timedelta(seconds=0.25)).isoformat(),
    }


def deletion(seconds, **options):
    return call("delete", "/api/v1/namespaces/ci/secrets/old", seconds, resource="secrets", **options)


PASS = [call("get", "/api", 0), call("list", "/api/v1/namespaces/ci/pods?limit=500", 1)]


def test_window_starts_with_the_last_pass_and_ends_with_the_accepted_delete():
    again = [call("get", "/api", 10), call("list", "/api/v1/namespaces/ci/pods?limit=500", 12)]
    windows = windows_of([deletion(2), *PASS, *again, deletion(14)])
    assert windows.from_start == [2.25, 4.25]
    assert windows.from_pods == [1.25, 2.25]


def test_window_starts_with_the_first_page_of_the_pods_of_the_namespace():
    other = call("list", "/api/v1/namespaces/web/pods?limit=500", 2, namespace="web")
    page = call("list", "/api/v1/namespaces/ci/pods?limit=500&continue=x", 2)
    assert windows_of([*PASS, other, page, deletion(3)]).from_pods == [2.25]


def test_refused_delete_has_no_window():
    assert windows_of([*PASS, deletion(2, code=409)]).from_start == []


def test_lists_are_the_first_page_of_each_once():
    page = call("list", "/api/v1/namespaces/ci/pods?limit=500&continue=x", 2)
    assert lists_of([*PASS, page, *PASS, deletion(3)]) == ["/api", "/api/v1/namespaces/ci/pods?limit=500"]
