"""Which policy `run` applies, and its last line: what was deleted and stopped, or would have been.

The policy is the one that is named, else the installed one; an unknown one is no weaker one.
"""

from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.adapters.config.settings import read_settings
from shared.adapters.kubernetes import connect as connecting
from shared.adapters.telemetry import logs
from shared.adapters.telemetry.logs import LogTelemetry
from shared.cli import run
from shared.cli.deleters.in_force import NamespaceState
from shared.cli.input.options import Options
from shared.cli.run import find_named_policy, read_policy_of_run, summarize
from shared.core.policy.archives import ArchiveDestination
from shared.core.policy.policy import NO_POLICY
from shared.core.values.objects import ObjectRef
from shared.errors import ForbiddenError, PermanentError, TtlError
from shared.installation.installed import FollowedPolicy, Installed
from shared.messages import ObjectStopped
from shared.ports import Verdict
from tests.builders import NOW
from tests.fakes import FakeTelemetry
from tests.unit.cli.test_obstacles import CLOSED, INSTALLED, RULES, leader, of, scope

pytestmark = pytest.mark.anyio


class Server:
    """The Deployments of an API server; nothing else exists."""

    def __init__(self, *deployments, forbids=""):
        self._deployments, self._forbids = deployments, forbids

    async def request(self, method, path, *, missing_ok=False):
        assert (method, missing_ok) == ("GET", True)
        if self._forbids and self._forbids in path:
            raise ForbiddenError("may not list Deployments")
        if "/deployments" not in path:
            return None
        namespace = path.split("/")[5] if "/namespaces/" in path else ""
        items = [one for one in self._deployments if namespace in ("", one["metadata"]["namespace"])]
        return SimpleNamespace(body={"items": items}, read_at=NOW)


def workload(namespace, folder="/etc/ttl", source=None):
    labels = {"app.kubernetes.io/name": "ttl-after-finished"}
    container = {
        "name": "main",
        "env": [{"name": "TTL_POLICY", "value": "/etc/ttl/policy.yaml"}],
        "volumeMounts": [{"name": "policy", "mountPath": folder}],
    }
    volumes = [{"name": "policy", **(source or {"configMap": {"name": "policy"}})}]
    spec = {"template": {"spec": {"containers": [container], "volumes": volumes}}}
    metadata = {"name": "standalone", "namespace": namespace, "labels": labels, "uid": f"uid-{namespace}"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def unled(**options):
    """Of a user who may read the shared state, but no Lease, as with the ClusterRole `view`."""
    found = of(**options)
    return replace(found, states=[replace(one, problem="no", leader_problem="no") for one in found.states])


def beside(led, other):
    """Of a `run` in its usual namespace, and another one in a namespace of its own."""
    found = of(installed=None, led=led)
    return replace(found, states=[*found.states, NamespaceState("ops", CLOSED, replace(other, namespace="ops"))])


@pytest.mark.parametrize(
    ("found", "known"),
    [
        (of(), True),
        (of(installed=Installed("home", INSTALLED.kinds, NO_POLICY)), True),
        (of(installed=Installed("home", INSTALLED.kinds, NO_POLICY, problem="rules: expected a list")), False),
        (of(installed=None, problem="forbidden"), False),
        (of(installed=None), True),
        (of(installed=None, led=leader(scope=scope(policy="1a2b3c4d5e6f"))), False),
        (of(installed=None, led=leader(scope=scope())), True),
        (of(installed=None, led=leader()), False),
        (unled(installed=None), False),
        (replace(of(installed=None), leaders_problem="may not list Leases"), False),
        (replace(of(), leaders_problem="may not list Leases"), True),
        (beside(leader(scope=scope()), leader(scope=scope(policy="1a2b3c4d5e6f"))), False),
        (beside(leader(scope=scope()), leader(scope=scope())), True),
        (unled(), True),
    ],
)
def test_policy_is_known_only_if_it_could_be_read(found, known):
    assert found.choose(None).is_known is known


async def test_installations_in_other_namespaces_make_the_policy_unknown():
    cluster: Any = Server(workload("ops"))
    with pytest.raises(TtlError, match="but in ops; set TTL_NAMESPACE") as caught:
        await read_policy_of_run(cluster, Options(), FakeTelemetry())
    assert "set --policy FILE, or --policy none" in str(caught.value)


@pytest.mark.parametrize("kind", ["deployments", "statefulsets"])
async def test_policy_is_unknown_if_other_namespaces_may_not_be_searched(kind):
    cluster: Any = Server(workload("ops"), forbids=f"/apis/apps/v1/{kind}")
    with pytest.raises(TtlError, match=r"installed in another one is unknown.*may not list Deployments") as caught:
        await read_policy_of_run(cluster, Options(), FakeTelemetry())
    assert "set --policy FILE, or --policy none" in str(caught.value)


@pytest.mark.parametrize("changed", [{"source": {"secret": {"secretName": "policy"}}}, {"folder": "/elsewhere"}])
async def test_policy_that_is_no_mounted_config_map_is_unknown(changed):
    cluster: Any = Server(workload("ttl-after-finished", **changed))
    with pytest.raises(TtlError, match="TTL_POLICY of standalone"):
        await read_policy_of_run(cluster, Options(), FakeTelemetry())


async def test_installation_that_may_not_be_read_is_unknown():
    cluster: Any = Server(forbids="deployments")
    with pytest.raises(TtlError, match="may not list Deployments"):
        await read_policy_of_run(cluster, Options(), FakeTelemetry())


@pytest.mark.parametrize(
    ("options", "variables", "in_pod_of", "expected"),
    [
        (Options(), {}, "", None),
        (Options(policy=Path("none")), {"TTL_POLICY": "none"}, "", ""),
        (Options(), {"TTL_POLICY": "own.yaml"}, "", "own.yaml"),
        (Options(), {"TTL_NAMESPACE": "home"}, "home", ""),
        (Options(), {"TTL_NAMESPACE": "home"}, "toolbox", None),
        (Options(), {}, "home", None),
        (Options(context="other"), {"TTL_NAMESPACE": "home"}, "home", None),
    ],
)
def test_policy_is_named_by_the_operator_or_by_a_pod_of_the_installation(
    options, variables, in_pod_of, expected, tmp_path, monkeypatch
):
    if in_pod_of:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
        for name, text in (("token", "x"), ("namespace", in_pod_of)):
            (tmp_path / name).write_text(text)
    monkeypatch.setattr(connecting, "SERVICE_ACCOUNT", tmp_path)
    named = find_named_policy(options, read_settings(environment=variables))
    assert (named.name if named else None) == expected


async def test_followed_policy_stays_in_force_while_the_installed_one_is_unknown_or_gone():
    reads: list[Any] = []
    reported: list[str] = []

    async def read():
        answer = reads.pop(0)
        if isinstance(answer, TtlError):
            raise answer
        return answer

    followed = FollowedPolicy(read, RULES, reported.append, is_installed=True)
    empty = Installed("home", INSTALLED.kinds, NO_POLICY)
    bad = Installed("home", INSTALLED.kinds, NO_POLICY, problem="bad")
    for answer in (ForbiddenError("no"), ForbiddenError("no"), None, bad):
        reads.append(answer)
        await followed.refresh()
        assert followed.policy() is RULES
        assert not followed.is_good
    assert [reported[0], reported[2]] == ["no", "bad"]
    for answer, policy in ((INSTALLED, RULES), (empty, NO_POLICY), (INSTALLED, RULES)):
        reads.append(answer)
        await followed.refresh()
        assert followed.policy() is policy
        assert followed.is_good


async def test_installation_that_appears_later_is_followed():
    async def read():
        return INSTALLED

    followed = FollowedPolicy(read, NO_POLICY, pytest.fail, is_installed=False)
    await followed.refresh()
    assert followed.policy() is RULES


async def test_folder_of_the_pods_is_no_archive_of_this_machine(tmp_path):
    cluster: Any = Server()
    async with AsyncExitStack() as at_end:
        installed = await read_policy_of_run(cluster, Options(), FakeTelemetry())
        with pytest.raises(PermanentError, match="is a folder of the Pods"):
            await installed.reachable_archives(at_end).open("a", ArchiveDestination(url=f"file://{tmp_path}"))


DUE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def ref(uid):
    return ObjectRef("batch/v1", "Job", "ci", f"job-{uid}", uid)


def test_summary_names_stops_only_if_there_were_any():
    telemetry = LogTelemetry()
    assert summarize(telemetry, dry_run=False) == "0 deleted, 0 of them found only by a sweep"
    stop = {
        "started_at": DUE,
        "deadline_from": "",
        "due_at": DUE,
        "stopped_at": DUE,
        "lateness_seconds": 0.0,
        "stops": 1,
    }
    telemetry.object_stopped(ObjectStopped(ref=ref("a"), **stop), by="enforce")
    expected = "0 deleted, 0 of them found only by a sweep; 1 stopped at their deadline"
    assert summarize(telemetry, dry_run=False) == expected


def test_summary_of_a_dry_run_counts_each_object_once():
    telemetry = LogTelemetry()
    telemetry.record(Verdict.WOULD_DELETE, ref("a"))
    assert summarize(telemetry, dry_run=True) == "dry run: 1 object would have been deleted"
    for uid in ("b", "b", "c"):
        telemetry.record(Verdict.WOULD_STOP, ref(uid))
    assert summarize(telemetry, dry_run=True) == "dry run: 1 object would have been deleted, 2 stopped"


def test_summary_of_a_dry_run_says_that_it_stopped_counting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "REMEMBERED_UIDS_MAX", 2)
    monkeypatch.setattr(run, "REMEMBERED_UIDS_MAX", 2)
    telemetry = LogTelemetry()
    for uid in ("a", "b", "c"):
        telemetry.record(Verdict.WOULD_DELETE, ref(uid))
    assert summarize(telemetry, dry_run=True) == "dry run: at least 2 objects would have been deleted"
