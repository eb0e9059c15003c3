"""Settings: each invalid value is one sentence that names its variable."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.config.settings import Settings, SettingsError, read_settings, state_folder
from shared.adapters.config.timers_address import SqliteAddress
from shared.bootstrap.config import read_config


def test_empty_environment_gives_the_defaults():
    settings = read_settings(environment={"PATH": "/bin", "K_SERVICE": "sweep"})

    assert settings.kinds == ()
    assert settings.dry_run is False
    assert settings.sweep_interval == timedelta(minutes=10)
    assert settings.concurrency == 64
    assert settings.timers is None
    assert settings.metrics_port is None
    assert (settings.log, settings.home_namespace, settings.sink) == (None, "", "")


def test_each_variable_is_read():
    settings = read_settings(
        environment={
            "TTL_KINDS": " jobs, pods ,",
            "TTL_DRY_RUN": "true",
            "TTL_SWEEP_INTERVAL": "1h30m",
            "TTL_CONCURRENCY": "8",
            "TTL_TIMERS": "sqlite:/data/t.db",
            "TTL_METRICS_PORT": "9464",
            "TTL_LOG": "text",
            "TTL_NAMESPACE": "ttl-after-finished",
            "K_SINK": "http://broker-ingress.knative-eventing.svc/ns/default",
        }
    )

    assert settings.kinds == ("jobs", "pods")
    assert settings.dry_run is True
    assert settings.sweep_interval == timedelta(minutes=90)
    assert settings.concurrency == 8
    assert settings.timers == SqliteAddress(Path("/data/t.db"))
    assert settings.metrics_port == 9464
    assert settings.log == "text"
    assert settings.home_namespace == "ttl-after-finished"
    assert settings.sink == "http://broker-ingress.knative-eventing.svc/ns/default"


def test_given_variables_override_the_environment():
    settings = read_settings({"TTL_KINDS": "jobs"}, environment={"TTL_KINDS": "pods", "TTL_LOG": "text"})

    assert (settings.kinds, settings.log) == (("jobs",), "text")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TTL_DRY_RUN", "perhaps"),
        ("TTL_DRY_RUN", "yes"),
        ("TTL_DRY_RUN", "1"),
        ("TTL_JOURNAL", "off"),
        ("TTL_SWEEP_INTERVAL", "often"),
        ("TTL_SWEEP_INTERVAL", "0"),
        ("TTL_SWEEP_INTERVAL", "-5m"),
        ("TTL_SWEEP_INTERVAL", "never"),
        ("TTL_CONCURRENCY", "0"),
        ("TTL_CONCURRENCY", "1001"),
        ("TTL_CONCURRENCY", "many"),
        ("TTL_CONCURRENCY", "6.5"),
        ("TTL_METRICS_PORT", "metrics"),
        ("TTL_METRICS_PORT", "0"),
        ("TTL_METRICS_PORT", "65536"),
        ("TTL_LOG", "xml"),
        ("TTL_NAMESPACE", "Not A Name"),
        ("TTL_NAMESPACE", "../default"),
        ("K_SINK", "broker"),
        ("K_SINK", "ftp://broker"),
        ("TTL_KIND", "jobs"),
        ("TTL_", "x"),
    ],
)
def test_invalid_value_is_one_sentence_that_names_the_variable(name, value):
    with pytest.raises(SettingsError) as error:
        read_settings(environment={name: value})

    assert str(error.value).startswith(f"{name}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name",
    sorted(
        str(one.alias)
        for one in Settings.model_fields.values()
        if any(getattr(constraint, "pattern", None) for constraint in one.metadata)
    ),
)
def test_error_of_a_setting_with_a_pattern_says_what_was_expected(name):
    with pytest.raises(SettingsError, match=rf"^{name}: expected [^^$]*, got '!'$"):
        read_settings(environment={name: "!"})


@pytest.mark.parametrize("name", ["TTL_DRY_RUN", "TTL_JOURNAL"])
def test_error_of_a_boolean_names_both_values(name):
    with pytest.raises(SettingsError, match=f"^{name}: expected true or false, got 'no'$"):
        read_settings(environment={name: "no"})


@pytest.mark.parametrize("value", ["", " ", "\n"])
@pytest.mark.parametrize(
    "name", sorted(str(one.alias) for one in Settings.model_fields.values() if str(one.alias).startswith("TTL_"))
)
def test_empty_variable_is_rejected(name, value):
    with pytest.raises(SettingsError, match=f"^{name}: expected a value, got an empty one; unset it "):
        read_settings(environment={name: value})


@pytest.mark.parametrize("name", ["TTL_KINDS", "TTL_CALLERS"])
def test_list_without_a_word_is_rejected(name):
    with pytest.raises(SettingsError, match=f"^{name}: expected"):
        read_settings(environment={name: " , ,"})


def test_all_selects_every_kind():
    assert read_settings({"TTL_KINDS": "all"}, environment={"TTL_KINDS": "pods"}).kinds == ()


def test_empty_sink_is_unset():
    assert read_settings(environment={"K_SINK": ""}).sink == ""


def test_unknown_variable_error_lists_the_known_ones():
    with pytest.raises(SettingsError, match=r"TTL_SWEEP: unknown setting; expected one of .*TTL_SWEEP_INTERVAL"):
        read_settings(environment={"TTL_SWEEP": "5m"})


def test_unknown_kind_error_lists_the_known_ones():
    with pytest.raises(SettingsError, match=r"TTL_KINDS: unknown kind 'gizmos': expected a kind"):
        read_config(read_settings(environment={"TTL_KINDS": "jobs,gizmos"}))


def test_kinds_are_enabled_by_kind_plural_or_short_name():
    config = read_config(read_settings(environment={"TTL_KINDS": "Job,po"}))

    assert [rule.kind for rule in config.catalogue.rules] == ["Job", "Pod"]
    assert len(config.kinds.rules) > 2


@given(st.dictionaries(st.sampled_from(["TTL_KINDS", "TTL_LOG", "TTL_CONCURRENCY", "K_SINK", "TTL_X"]), st.text()))
def test_any_environment_gives_settings_or_a_settings_error(environment):
    with suppress(SettingsError):
        assert read_settings(environment=environment).concurrency


def test_state_folder_follows_xdg():
    assert state_folder({"XDG_STATE_HOME": "/state"}) == Path("/state")
    assert state_folder({}).parts[-2:] == (".local", "state")


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("environment", "sends_traces", "sends_metrics"),
    [
        ({}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False, False),
        (ENDPOINT, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}, True, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c/v1/metrics"}, False, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False, True),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "console"}, True, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "console, otlp", "OTEL_METRICS_EXPORTER": ""}, True, True),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, False, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": ""}, True, True),
    ],
)
def test_variables_of_opentelemetry_say_what_is_sent(environment, sends_traces, sends_metrics):
    settings = read_settings(environment=environment)

    assert (settings.sends_traces, settings.sends_metrics) == (sends_traces, sends_metrics)
