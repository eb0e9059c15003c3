"""Completion of namespaces and objects, from a real API server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import ROOT
from tests.integration.conftest import Api
from tests.integration.reader import needs_kubectl
from tests.integration.test_plan import jobs  # noqa: F401 - a fixture
from tests.servers import shared_server  # noqa: F401 - a fixture


@pytest.fixture
def programs(api: Api, tmp_path: Path) -> dict[str, str]:
    """The environment in which kubectl finds the program and its completion."""
    for name, module in (("kubectl-ttl", "shared.cli.main"), ("kubectl_complete-ttl", "shared.cli.completion.cobra")):
        path = tmp_path / name
        path.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom {module} import main\nmain()\n"
        )
        path.chmod(0o755)
    places = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": places, "KUBECONFIG": str(api.server.kubeconfig)}


def answers(environment: dict[str, str], *words: str) -> list[str]:
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.usefixtures("jobs")
def test_objects_and_namespaces_are_completed_from_the_cluster(api, programs, namespace):
    api.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "flags"}})
    program = "kubectl_complete-ttl"
    assert answers(programs, program, "explain", "-n", namespace, "jobs", "") == [*"abcd", "works", ":4"]
    assert answers(programs, program, "explain", "-n", namespace, "job/wo") == ["job/works", ":4"]
    assert namespace in answers(programs, program, "plan", "-n", namespace[:3])
    assert answers(programs, program, "references", "-n", namespace, "configmaps/f") == ["configmaps/flags", ":4"]
    assert answers(programs, program, "explain", "-n", "absent", "jobs", "") == [":4"]


@needs_kubectl
@pytest.mark.usefixtures("jobs")
def test_kubectl_completes_the_plugin(programs, namespace):
    assert answers(programs, "kubectl", "__complete", "ttl", "explain", "-n", namespace, "jobs/wo")[0] == "jobs/works"
