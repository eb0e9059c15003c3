"""Triggers: which events they match, and the errors for invalid manifests."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.messages import Purpose, Timer
from shared.standalone.triggers import ManifestError, Trigger, read_triggers

KNATIVE = Path(__file__).parents[3] / "knative" / "base"
ADD = "dev.knative.apiserver.resource.add"
UPDATE = "dev.knative.apiserver.resource.update"
JOB_ADDED = {"specversion": "1.0", "id": "1", "source": "https://api", "type": ADD, "kind": "Job", "namespace": ""}


def manifest(name="one", **spec):
    ref = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": "schedule"}
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": {"name": name},
        "spec": {"broker": "default", "subscriber": {"ref": ref}} | spec,
    }


def read(folder: Path, *documents) -> tuple[Trigger, ...]:
    (folder / "wiring.yaml").write_text(yaml.safe_dump_all(documents))
    return read_triggers(folder)


FILTERS = {
    "exact": ([{"exact": {"type": ADD}}], True),
    "exact-other-value": ([{"exact": {"type": UPDATE}}], False),
    "exact-absent": ([{"exact": {"subject": "x"}}], False),
    "exact-is-not-prefix": ([{"exact": {"type": "dev.knative"}}], False),
    "exact-both": ([{"exact": {"type": ADD, "kind": "Job"}}], True),
    "exact-one-of-two": ([{"exact": {"type": ADD, "kind": "Pod"}}], False),
    "prefix": ([{"prefix": {"type": "dev.knative.apiserver."}}], True),
    "prefix-of-the-end": ([{"prefix": {"type": "add"}}], False),
    "prefix-absent": ([{"prefix": {"subject": "x"}}], False),
    "suffix": ([{"suffix": {"type": ".add"}}], True),
    "suffix-of-the-start": ([{"suffix": {"type": "dev"}}], False),
    "suffix-absent": ([{"suffix": {"subject": "x"}}], False),
    "all": ([{"all": [{"prefix": {"type": "dev."}}, {"exact": {"kind": "Job"}}]}], True),
    "all-but-one": ([{"all": [{"prefix": {"type": "dev."}}, {"exact": {"kind": "Pod"}}]}], False),
    "any": ([{"any": [{"exact": {"type": UPDATE}}, {"exact": {"type": ADD}}]}], True),
    "any-none": ([{"any": [{"exact": {"type": UPDATE}}, {"exact": {"kind": "Pod"}}]}], False),
    "not": ([{"not": {"exact": {"kind": "Pod"}}}], True),
    "not-this": ([{"not": {"exact": {"kind": "Job"}}}], False),
    "not-absent": ([{"not": {"prefix": {"subject": "x"}}}], True),
    "nested": ([{"not": {"any": [{"exact": {"kind": "Pod"}}, {"all": [{"suffix": {"type": "update"}}]}]}}], True),
    "nested-false": ([{"any": [{"not": {"all": [{"exact": {"kind": "Job"}}]}}]}], False),
    "and": ([{"exact": {"kind": "Job"}}, {"suffix": {"type": "add"}}], True),
    "and-false": ([{"exact": {"kind": "Job"}}, {"suffix": {"type": "update"}}], False),
    "no-filters": ([], True),
}


@pytest.mark.parametrize(("filters", "expected"), FILTERS.values(), ids=FILTERS)
def test_filters_select_the_event(filters, expected, tmp_path):
    (trigger,) = read(tmp_path, manifest(filters=filters))
    assert trigger.matches(JOB_ADDED) is expected


@pytest.mark.parametrize(("filters", "expected"), FILTERS.values(), ids=FILTERS)
def test_trigger_that_matches_an_event_may_match_its_type(filters, expected, tmp_path):
    (trigger,) = read(tmp_path, manifest(filters=filters))
    assert trigger.may_match(ADD) or not expected


@pytest.mark.parametrize("name", ["exact-other-value", "any-of-other-types", "all-with-another-type"])
def test_trigger_of_other_types_may_not_match_a_type(name, tmp_path):
    other = {"exact": {"type": UPDATE}}
    filters = {
        "exact-other-value": [other],
        "any-of-other-types": [{"any": [other, {"exact": {"type": "x"}}]}],
        "all-with-another-type": [{"all": [{"prefix": {"type": "dev."}}, other]}],
    }
    (trigger,) = read(tmp_path, manifest(filters=filters[name]))
    assert not trigger.may_match(ADD)


LEGACY = {
    "exact": ({"attributes": {"type": ADD}}, True),
    "other": ({"attributes": {"type": UPDATE}}, False),
    "all-of-them": ({"attributes": {"type": ADD, "kind": "Pod"}}, False),
    "any-value": ({"attributes": {"kind": ""}}, True),
    "any-value-even-empty": ({"attributes": {"namespace": ""}}, True),
    "any-value-absent": ({"attributes": {"subject": ""}}, False),
    "no-attributes": ({"attributes": {}}, True),
    "empty": ({}, True),
}


@pytest.mark.parametrize(("legacy", "expected"), LEGACY.values(), ids=LEGACY)
def test_legacy_filter_selects_the_event(legacy, expected, tmp_path):
    (trigger,) = read(tmp_path, manifest(filter=legacy))
    assert trigger.matches(JOB_ADDED) is expected


def test_filters_replace_the_legacy_filter(tmp_path):
    (trigger,) = read(tmp_path, manifest(filter={"attributes": {"kind": "Pod"}}, filters=[{"exact": {"kind": "Job"}}]))
    assert trigger.matches(JOB_ADDED)


def test_empty_filters_leave_the_legacy_filter(tmp_path):
    (trigger,) = read(tmp_path, manifest(filter={"attributes": {"kind": "Pod"}}, filters=[]))
    assert not trigger.matches(JOB_ADDED)


DELIVERY = {"retry": 3, "backoffPolicy": "exponential", "backoffDelay": "PT0.2S", "timeout": "PT1M30S"}


def test_delivery_is_read(tmp_path):
    (trigger,) = read(tmp_path, manifest(delivery=DELIVERY | {"deadLetterSink": {"uri": "http://dead"}}))
    assert trigger.delivery.retry == 3
    assert trigger.delivery.timeout == timedelta(seconds=90)
    assert trigger.delivery.dead_letter_sink == {"uri": "http://dead"}


PAUSES = {
    "exponential": (DELIVERY, [0.2, 0.4, 0.8, 1.6]),
    "linear-starts-at-0": (DELIVERY | {"backoffPolicy": "linear"}, [0.0, 0.2, 0.4, 0.6]),
    "no-policy": ({"retry": 3, "backoffDelay": "PT1S"}, [0.0, 0.0, 0.0, 0.0]),
    "no-delay": ({"retry": 3, "backoffPolicy": "exponential"}, [0.0, 0.0, 0.0, 0.0]),
    "the-broker's-own": (None, [0.2, 0.4, 0.8, 1.6]),
}


@pytest.mark.parametrize(("delivery", "pauses"), PAUSES.values(), ids=PAUSES)
def test_pauses_follow_the_delivery(delivery, pauses, tmp_path):
    (trigger,) = read(tmp_path, manifest(delivery=delivery))
    assert [trigger.delivery.pause_seconds(n) for n in range(4)] == pytest.approx(pauses)


def ref(**fields):
    return {"ref": {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": "x"} | fields}


WRONG = {
    "cesql": (
        {"filters": [{"any": [{"exact": {"type": ADD}}, {"cesql": "type = 'x'"}]}]},
        "spec.filters[0].any[1].cesql: expected one of the dialects exact,",
    ),
    "two-dialects": (
        {"filters": [{"exact": {"type": ADD}, "prefix": {"type": "x"}}]},
        "spec.filters[0]: expected exactly one dialect",
    ),
    "no-dialect": ({"filters": [{"exact": {"type": ADD}}, {}]}, "spec.filters[1]: expected exactly one dialect"),
    "null-dialect": ({"filters": [{"exact": None}]}, "spec.filters[0]: expected exactly one dialect"),
    "unknown-dialect": ({"filters": [{"regex": {"type": ADD}}]}, "spec.filters[0].regex: unknown field"),
    "name-of-attribute": ({"filters": [{"exact": {"Type": ADD}}]}, "spec.filters[0].exact.Type: "),
    "name-with-digit-first": ({"filters": [{"exact": {"1st": ADD}}]}, "spec.filters[0].exact.1st: "),
    "empty-value": ({"filters": [{"prefix": {"type": ""}}]}, "spec.filters[0].prefix.type: "),
    "no-pairs": ({"filters": [{"suffix": {}}]}, "spec.filters[0].suffix: "),
    "empty-all": ({"filters": [{"all": []}]}, "spec.filters[0].all: "),
    "value-no-text": (
        {"filters": [{"exact": {"type": 5}}]},
        "spec.filters[0].exact.type: expected to be a valid string",
    ),
    "legacy-name": ({"filter": {"attributes": {"a-b": "x"}}}, "spec.filter.attributes.a-b: "),
    "negative-retry": ({"delivery": {"retry": -1}}, "spec.delivery.retry: "),
    "retry-no-number": ({"delivery": {"retry": "3"}}, "spec.delivery.retry: "),
    "policy": (
        {"delivery": {"backoffPolicy": "quadratic"}},
        "spec.delivery.backoffPolicy: expected to be 'exponential'",
    ),
    "delay-no-iso": (
        {"delivery": {"backoffDelay": "200ms"}},
        "spec.delivery.backoffDelay: expected an ISO 8601 duration",
    ),
    "delay-number": ({"delivery": {"backoffDelay": 2}}, "spec.delivery.backoffDelay: expected an ISO 8601 duration"),
    "delay-malformed": ({"delivery": {"backoffDelay": "PT"}}, "spec.delivery.backoffDelay: "),
    "timeout-0": ({"delivery": {"timeout": "PT0S"}}, "spec.delivery.timeout: "),
    "typo": ({"delivery": {"retires": 3}}, "spec.delivery.retires: unknown field"),
    "no-broker": ({"broker": ""}, "spec.broker: "),
    "uri": ({"subscriber": {"uri": "http://x"}}, "spec.subscriber.ref: "),
    "other-kind": ({"subscriber": ref(kind="Deployment")}, "spec.subscriber.ref.kind: expected to be 'Service'"),
    "core-service": ({"subscriber": ref(apiVersion="v1")}, "spec.subscriber.ref.apiVersion: "),
    "no-name": ({"subscriber": ref(name="")}, "spec.subscriber.ref.name: "),
}


@pytest.mark.parametrize(("spec", "message"), WRONG.values(), ids=WRONG)
def test_invalid_trigger_raises_with_file_and_field(spec, message, tmp_path):
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, manifest("good"), manifest("bad", **spec))
    assert str(caught.value).startswith(f"{tmp_path / 'wiring.yaml'}: Trigger bad: {message}")


@pytest.mark.parametrize("text", ["a: [", "\tx"], ids=["open", "tab"])
def test_file_without_yaml_raises_with_its_path(text, tmp_path):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ManifestError, match=r"x\.yaml: invalid YAML at line [12]: "):
        read_triggers(tmp_path)


def test_missing_file_raises_with_its_path(tmp_path):
    with pytest.raises(ManifestError, match=r"none\.yaml: expected a readable file, got No such file"):
        read_triggers(tmp_path / "none.yaml")


def test_duplicate_trigger_name_raises(tmp_path):
    with pytest.raises(ManifestError, match=r"Trigger one: metadata\.name: expected a unique name"):
        read(tmp_path, manifest(), manifest())


def test_trigger_without_metadata_is_still_reported(tmp_path):
    with pytest.raises(ManifestError, match=r"Trigger \?: metadata: expected a value, got none"):
        read(tmp_path, {"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger"})


def test_other_documents_are_ignored_and_folders_are_searched(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    others: list[Any] = [None, [], "text", {"kind": "Trigger", "apiVersion": "other/v1"}, {"kind": "Broker"}]
    (tmp_path / "deep" / "er" / "b.yml").write_text(yaml.safe_dump_all([*others, manifest("b")]))
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all([manifest("a"), manifest("c")]))
    (tmp_path / "notes.txt").write_text("a: [")
    assert [trigger.name for trigger in read_triggers(tmp_path)] == ["a", "c", "b"]


SHIPPED = {
    ADD: ["schedule"],
    UPDATE: ["schedule"],
    "dev.knative.apiserver.resource.delete": [],
    "dev.ttlafterfinished.timer.set": ["timers"],
    "dev.ttlafterfinished.timer.fired": [],
    "dev.knative.sources.ping": ["sweep"],
    "dev.ttlafterfinished.sweep.continue": ["sweep"],
    "dev.ttlafterfinished.object.deleted": [],
}


@pytest.mark.parametrize(("type_", "functions"), SHIPPED.items(), ids=SHIPPED)
def test_shipped_triggers_deliver_each_type_to_its_functions(type_, functions):
    event = {**JOB_ADDED, "type": type_}
    assert [trigger.subscriber for trigger in read_triggers(KNATIVE) if trigger.matches(event)] == functions


@pytest.mark.parametrize("purpose", Purpose)
def test_shipped_triggers_deliver_a_timer_to_the_function_of_its_purpose(purpose):
    event = {**JOB_ADDED, "type": Timer.type, "purpose": purpose.value}
    assert [trigger.subscriber for trigger in read_triggers(KNATIVE) if trigger.matches(event)] == [purpose.function]


@pytest.mark.parametrize("name", ["schedule", "timers", "expire", "enforce", "sweep"])
def test_shipped_function_has_its_service_and_its_trigger(name):
    service, trigger = yaml.safe_load_all((KNATIVE / f"{name}.yaml").read_text())
    container = service["spec"]["template"]["spec"]["containers"][0]
    env = {variable["name"]: variable["value"] for variable in container["env"]}
    assert service["metadata"]["name"] == trigger["metadata"]["name"] == name
    assert env == {"FUNCTION_TARGET": name, "FUNCTION_SOURCE": f"/app/functions/{name}.py"}
    assert trigger["spec"]["broker"] == "default"
    assert {"retry", "backoffPolicy", "backoffDelay", "timeout"} <= trigger["spec"]["delivery"].keys()
