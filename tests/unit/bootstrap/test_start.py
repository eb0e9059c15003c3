"""The process that a function gets when its file is loaded, its exports and its garbage collection."""

import asyncio
import json
import os
import subprocess
import sys
import threading

import pytest
from aiohttp import web

from shared.adapters.config.settings import SettingsError, read_settings
from shared.adapters.tracing.current import get_tracer, install
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.bootstrap.process import Process
from shared.bootstrap.start import loading_for, start, start_exports
from shared.devserver.ports import free_port
from shared.errors import TtlError
from tests.builders import ROOT
from tests.fakes import FakeCluster, FakePublisher
from tests.loopback import answering_with
from tests.otlp_receiver import receiving

pytestmark = pytest.mark.anyio


def test_function_uses_the_process_of_the_program_that_loads_it():
    process = build(read_config(read_settings(environment={})))
    with loading_for(process):
        assert start(Process.access) is process


def test_missing_setting_of_a_need_is_raised_to_the_program():
    with loading_for(build(read_config(read_settings(environment={})))), pytest.raises(TtlError, match=r"^K_SINK: "):
        start(Process.published)


IMPORTED = """
import asyncio, sys
async def load():
    import functions.{name}
asyncio.run(load())
print([each for each in sys.modules if each.startswith("opentelemetry")])
"""


@pytest.fixture(autouse=True)
def _no_tracer_is_left():
    yield
    install(None)


def process_of(**environment):
    config = read_config(read_settings(environment=environment), cluster=FakeCluster(), publisher=FakePublisher())
    return build(config)


@pytest.mark.parametrize("name", ["schedule", "expire"])
@pytest.mark.parametrize(
    ("otel", "is_imported"),
    [({}, False), ({"OTEL_SERVICE_NAME": "a", "OTEL_TRACES_SAMPLER": "always_on"}, False), ("endpoint", True)],
    ids=["none", "other variables", "endpoint"],
)
async def test_sdk_is_imported_only_with_an_endpoint(name, otel, is_imported, tmp_path):
    if otel == "endpoint":
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    api = {"TTL_API_SERVER": "http://127.0.0.1:1", "TTL_API_TOKEN": "t", "K_SINK": "http://sink"}
    environment = {**os.environ, **api, "TTL_TIMERS": f"sqlite:{tmp_path}/timers.db", **otel}
    program = (sys.executable, "-c", IMPORTED.format(name=name))
    process = await asyncio.create_subprocess_exec(*program, cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()

    assert process.returncode == 0
    assert (b"'opentelemetry.sdk.trace'" in printed) == is_imported
    assert (printed.strip() == b"[]") == (not is_imported)


async def test_endpoint_without_the_extra_names_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "shared.adapters.tracing.otel_tracer", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)

    with pytest.raises(SettingsError, match=r"^OTEL_EXPORTER_OTLP_ENDPOINT: .* install ttl-after-finished\[otel\], or"):
        start_exports(process_of(OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318"))


async def test_other_protocol_is_rejected_by_a_process_that_sends_and_ignored_by_others():
    grpc = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    start_exports(process_of(**grpc))

    with pytest.raises(SettingsError, match=r"^OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf, got 'grpc'"):
        start_exports(process_of(**grpc, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4317"))


async def test_receiver_that_does_not_answer_delays_the_end_for_a_limited_time(monkeypatch):
    monkeypatch.setattr("shared.bootstrap.start.EXPORT_SECONDS_MAX", 0.01)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    answers, earlier = asyncio.Event(), set(threading.enumerate())

    async def answer(_):
        await answers.wait()
        return web.Response()

    async with answering_with(answer) as endpoint:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        end = start_exports(process_of(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint))
        async with asyncio.timeout(60):
            await end()

        (exporting,) = (one for one in threading.enumerate() if one.name == "last-export" and one not in earlier)
        assert get_tracer() is None
        answers.set()
        await asyncio.to_thread(exporting.join)


async def test_metrics_are_pushed_without_a_port_and_traces_are_not_sent(monkeypatch):
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{receiver.url}/v1/metrics")
        process = process_of(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"{receiver.url}/v1/metrics")
        end = start_exports(process)
        assert get_tracer() is None
        process.config.metrics.answered("schedule", 204)
        await end()

    assert receiver.metrics["ttl_events_total"].sum.data_points[0].as_double == 1
    assert receiver.resources[0]["service.name"] == "ttl-after-finished"


@pytest.mark.parametrize(("function", "name"), [("", "ttl-after-finished"), ("expire", "expire")])
async def test_only_a_process_of_one_function_is_named_after_it(monkeypatch, function, name):
    """`run` inherits FUNCTION_TARGET if the shell, or the program that starts it, has set the variable."""
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{receiver.url}/v1/metrics")
        endpoint = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{receiver.url}/v1/metrics"}
        process = process_of(**endpoint, FUNCTION_TARGET="timers")
        end = start_exports(process, function=function)
        process.config.metrics.answered("schedule", 204)
        await end()

    assert receiver.resources[0]["service.name"] == name


PROBE = """
import gc, json
from shared.bootstrap.start import collect_rarely
collect_rarely()
first = gc.get_freeze_count()
late = [[] for _ in range(1000)]
collect_rarely()
print(json.dumps([first, gc.get_freeze_count(), gc.get_threshold()]))
"""


def test_loaded_objects_are_excluded_once_and_collections_are_rarer():
    output = subprocess.run([sys.executable, "-c", PROBE], cwd=ROOT, check=True, capture_output=True).stdout
    first, second, threshold = json.loads(output)
    assert 1_000 < second <= first
    assert threshold[0] == 50_000
