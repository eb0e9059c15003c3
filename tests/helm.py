"""The program `helm`, which is beside the test servers or on the PATH."""

import os
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from shared.devserver.real_servers import find_program
from tests.manifests.test_manifests import KNATIVE, Object

CHART = KNATIVE / "chart"
RELEASE = "ttl-after-finished"
HELM = find_program("helm") or shutil.which("helm")

_OPTION_OF_HELM_4 = "--server-side=false"

needs_helm = pytest.mark.skipif(
    HELM is None and (not os.environ.get("CI") or bool(os.environ.get("TESTS_WITHOUT_HELM"))),
    reason="helm is not installed; in CI this is a failure, unless TESTS_WITHOUT_HELM is set",
)


def helm(*arguments: str, values: Any = None) -> subprocess.CompletedProcess[str]:
    """Run helm; the values are those of a file."""
    assert HELM, "helm is not installed"
    given = ["--values=-"] if values is not None else []
    command = [str(HELM), *arguments, *given]
    return subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=False)


def client_side() -> tuple[str, ...]:
    """The option of `helm install` for objects that `kubectl apply` has made; Helm 3 needs no option."""
    return (_OPTION_OF_HELM_4,) if helm("version", "--template={{.Version}}").stdout.startswith("v4") else ()


def rendered(values: Any, *, namespace: str = "ttl-after-finished") -> list[Object]:
    """The objects that the chart makes of some values."""
    done = helm("template", RELEASE, str(CHART), f"--namespace={namespace}", values=values)
    assert done.returncode == 0, done.stderr
    return [obj for obj in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if obj]
