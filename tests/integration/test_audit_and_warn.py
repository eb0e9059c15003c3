"""Rules with `audit` and `warn` in `run`, on a real kube-apiserver with the real Job controller."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.conftest import Api, Run
from tests.integration.test_run import Cluster
from tests.servers import shared_server  # noqa: F401 - a fixture


def write_policy(folder: Path, **fields: Any) -> Path:
    file = folder / "policy.yaml"
    rule = {"name": "ci", "match": {"kinds": ["jobs"]}} | fields
    file.write_text(json.dumps({"rules": [rule]}))
    return file


def test_run_reports_what_an_audit_would_delete(
    api: Api, namespace: str, start_run: Callable[..., Run], tmp_path: Path
) -> None:
    cluster = Cluster(api, namespace)
    run = start_run("--policy", str(write_policy(tmp_path, ttl="3s", audit=True)))
    cluster.create_job("audited")
    cluster.finish_pods_of("audited")
    api.wait("the report", lambda: re.search(r'would-delete .*/audited".*audit-only', run.text))
    assert cluster.job("audited") is not None
    assert not re.search(r'deleted .*/audited"', run.text)


def test_run_warns_before_it_deletes(api: Api, namespace: str, start_run: Callable[..., Run], tmp_path: Path) -> None:
    cluster = Cluster(api, namespace)
    run = start_run("-v", "--policy", str(write_policy(tmp_path, ttl="12s", warn="6s")))
    api.wait("the first sweep", lambda: "sweep ended" in run.text)
    cluster.create_job("soon")
    cluster.finish_pods_of("soon")
    api.wait("the warning", lambda: re.search(r'warned .*/soon"', run.text))
    assert cluster.job("soon") is not None
    api.wait("the deletion", lambda: cluster.job("soon") is None)
    api.wait("the report", lambda: re.search(r'deleted .*/soon"', run.text))  # it follows the deletion
    lines = [line for line in run.text.splitlines() if line.rstrip().find('/soon"') > 0]
    verdicts = [word for line in lines for word in ("timer-set", "warned", "deleted") if f"{word} " in line]
    assert verdicts.count("warned") == 1
    assert verdicts.index("warned") < verdicts.index("deleted")
