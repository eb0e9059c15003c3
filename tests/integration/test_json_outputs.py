"""`-o json` of the commands that read a cluster, against their JSON Schemas, on a real API server."""

import json

import pytest

from tests.integration.test_plan import RULES, jobs, plan  # noqa: F401 - fixtures
from tests.reference.outputs import OUTPUTS
from tests.servers import shared_server  # noqa: F401 - a fixture

COMMANDS = [
    ("plan", ["plan", "--all"]),
    ("plan-by", ["plan", "--by", "owner"]),
    ("plan-policy", ["plan", "--policy", "new.yaml", "--yes"]),
    ("top", ["top"]),
    ("explain", ["explain", "job/a"]),
    ("explain", ["explain", "configmap/flags"]),
    ("references", ["references", "configmap/flags"]),
    ("unused", ["unused", "--all"]),
    ("doctor", ["doctor"]),
    ("ui", ["ui"]),
]


@pytest.mark.usefixtures("jobs")
def test_json_follows_the_schema(api, namespace, plan):  # noqa: F811
    api.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "flags"}, "data": {"a": "b"}})
    for name, (program, *words) in COMMANDS:
        done = plan(*words, "-o", "json", program=program, new={"rules": RULES})
        assert done.stdout, (name, done.stderr)
        found = json.loads(done.stdout)
        assert found, name
        OUTPUTS[name].adapter.validate_json(json.dumps(found), by_alias=True, by_name=False)
