"""`explain` looks for children among the kinds that the installation deletes, as `expire` does."""

import pytest

from shared.cli.objects.preview import find_one
from shared.core.decision.decide import Reason
from shared.core.kinds.rule import Catalogue
from tests.archives import FakeArchive, FakeArchives, archiving
from tests.builders import JOB, ago, job, kind_rule, namespace, shipped_kinds
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

TASK_RUN = kind_rule("taskruns.tekton.dev")


@pytest.mark.parametrize(
    ("enabled", "reason"),
    [
        (Catalogue((JOB,)), Reason.EXPIRED),
        (Catalogue((JOB, TASK_RUN)), Reason.CHILD_HELD),
        (None, Reason.CHILD_HELD),
    ],
)
async def test_explain_looks_at_children_of_enabled_kinds(enabled, reason):
    cluster = FakeCluster()
    cluster.put(namespace())
    due = cluster.put(job(complete=ago(60), ttl=30))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "build-42", "uid": due["metadata"]["uid"]}
    metadata = {"name": "run", "namespace": "ci", "uid": "uid-run", "ownerReferences": [owner]}
    annotations = {"ttlafterfinished.dev/hold": "evidence"}
    run = {"apiVersion": TASK_RUN.api_version, "kind": "TaskRun", "metadata": metadata | {"annotations": annotations}}
    cluster.put(run)

    one = await find_one(
        cluster,
        JOB,
        kinds=shipped_kinds(),
        enabled=enabled,
        namespace="ci",
        name="build-42",
        policy=archiving(match={"kinds": ["taskruns"]}),
        archives=FakeArchives({"main": FakeArchive()}),
    )

    assert one.decision.reason is reason
