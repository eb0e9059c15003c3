"""kubectl itself, as people use it."""

import asyncio
import json
import shutil

import pytest

from tests.builders import not_none

KUBECTL = shutil.which("kubectl")
pytestmark = [pytest.mark.anyio, pytest.mark.skipif(KUBECTL is None, reason="no kubectl in PATH")]

MANIFEST = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "hello", "annotations": {"ttlafterfinished.dev/ttl": "1h"}},
    "spec": {
        "managedBy": "example.com/contract",  # not by the Job controller: the test writes the status
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}},
    },
}


@pytest.fixture
def kubectl(api):
    async def run(*args, text=None):
        child = await asyncio.create_subprocess_exec(
            not_none(KUBECTL), f"--kubeconfig={api.server.kubeconfig}", f"--namespace={api.namespace}", *args,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, errors = await child.communicate(text.encode() if text else None)
        assert child.returncode == 0, errors.decode()
        return out.decode().strip()

    return run


async def test_kubectl_creates_gets_annotates_and_deletes_a_config_map(api, kubectl):
    assert await kubectl("create", "-f", "-", text=json.dumps(MANIFEST)) == "job.batch/hello created"
    header, row = (await kubectl("get", "jobs")).splitlines()
    assert header.split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert row.split()[:3] == ["hello", "Running", "0/1"]
    assert await kubectl("annotate", "job", "hello", "note=yes") == "job.batch/hello annotated"
    assert json.loads(await kubectl("get", "job", "hello", "-o", "json"))["metadata"]["annotations"]["note"] == "yes"
    assert (await kubectl("delete", "job", "hello")).startswith('job.batch "hello" deleted')
    assert (await api.get(api.jobs("hello"))).status == 404


async def test_kubectl_apply_twice_updates_the_object(api, kubectl):
    assert await kubectl("apply", "-f", "-", text=json.dumps(MANIFEST)) == "job.batch/hello created"
    changed = MANIFEST | {"metadata": {"name": "hello", "labels": {"x": "y"}}}
    assert await kubectl("apply", "-f", "-", text=json.dumps(changed)) == "job.batch/hello configured"
    metadata = (await api.get(api.jobs("hello"))).meta
    assert metadata["labels"]["x"] == "y"
    assert "ttlafterfinished.dev/ttl" not in metadata["annotations"]


async def test_kubectl_commands_without_a_manifest_work(api, kubectl):
    assert await kubectl("create", "job", "hi", "--image=busybox", "--", "sh", "-c", "true") == "job.batch/hi created"
    job = (await api.get(api.jobs("hi"))).body
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["command"]) == ("busybox", ["sh", "-c", "true"])
    assert await kubectl("auth", "can-i", "delete", "jobs.batch") == "yes"
    assert await kubectl("create", "configmap", "c", "--from-literal=a=b") == "configmap/c created"
    assert (await api.get(api.config_maps("c"))).body["data"] == {"a": "b"}


async def test_kubectl_waits_and_watches(api, kubectl):
    await kubectl("create", "-f", "-", text=json.dumps(MANIFEST))
    waiting = asyncio.create_task(kubectl("wait", "--for=condition=Complete", "job/hello", "--timeout=20s"))
    await asyncio.sleep(0.5)
    conditions = [{"type": t, "status": "True"} for t in ("SuccessCriteriaMet", "Complete")]
    times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:05Z"}
    for condition in conditions:
        condition["lastTransitionTime"] = times["completionTime"]
    status = {"status": {**times, "succeeded": 1, "conditions": conditions}}
    answer = await api.patch(api.jobs("hello") + "/status", status)
    assert answer.status == 200, answer
    assert await waiting == "job.batch/hello condition met"
    assert (await kubectl("get", "job", "hello")).splitlines()[1].split()[1:4] == ["Complete", "1/1", "5s"]
