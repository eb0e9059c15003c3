"""The libraries that a function imports, beyond functions-framework: each one lengthens the cold start."""

import asyncio
import json
import os
import sys

import pytest

from tests.builders import ROOT

pytestmark = pytest.mark.anyio

MODELS = {"annotated_types", "pydantic", "pydantic_core", "typing_inspection", "yaml"}
HTTP_CLIENT = {
    "aiohappyeyeballs",
    "aiohttp",
    "aiosignal",
    "attr",
    "backports",
    "frozenlist",
    "idna",
    "multidict",
    "propcache",
    "yarl",
}
API_SERVER = {"shared.adapters.kubernetes.cluster", "shared.adapters.kubernetes.connect"}
TIMERS = {"shared.adapters.timers.sqlite"}
PUBLISHER = {"shared.adapters.events.publisher"}
USE_CASES = {f"shared.usecases.{name}" for name in ("archive", "deadletter", "enforce", "expire", "sweep", "usage")}
"""What only its own function needs."""

PROBE = """
import asyncio, json, sys
import functions_framework.aio, uvicorn.main
before = set(sys.modules)
async def load():
    import functions.{name}
    print(json.dumps(sorted(sys.modules.keys() - before)))
asyncio.run(load())
"""


@pytest.mark.parametrize(
    ("name", "libraries", "ours", "not_ours"),
    [
        ("schedule", MODELS, set(), API_SERVER | TIMERS | PUBLISHER | USE_CASES),
        ("timers", MODELS | HTTP_CLIENT, TIMERS | PUBLISHER, API_SERVER | USE_CASES),
        ("expire", MODELS, set(), API_SERVER | TIMERS | PUBLISHER),
    ],
)
async def test_function_imports_only_the_listed_libraries(name, libraries, ours, not_ours, tmp_path):
    environment = {**os.environ, "K_SINK": "http://sink", "TTL_TIMERS": f"sqlite:{tmp_path}/timers.db"}
    command = (sys.executable, "-c", PROBE.format(name=name))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    loaded = set(json.loads(output))

    packages = {module.partition(".")[0] for module in loaded} - sys.stdlib_module_names - {"functions", "shared"}
    packages.discard("typing_extensions")  # of pydantic; on some Pythons functions-framework loads it first
    assert {package for package in packages if not package.startswith(("_", "cython"))} == libraries
    assert ours <= loaded
    assert not not_ours & loaded
