"""A merge patch counts for the version that was read, and for no other."""

import pytest

from shared.core.values.objects import get_annotations, ref_of
from shared.errors import ConflictError
from tests.builders import JOB

pytestmark = pytest.mark.anyio


def annotating(obj, value):
    annotations = {"ttlafterfinished.dev/hold": value}
    return {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"], "annotations": annotations}}


async def test_patch_returns_the_stored_object(api, cluster):
    job = await api.job("a")

    written = await cluster.patch(JOB, ref_of(job), annotating(job, "why"))

    assert get_annotations(written.obj) == {"hold": "why"}
    assert ref_of(written.obj) == ref_of(job)
    assert (await api.get(api.jobs("a"))).body == written.obj


async def test_patch_of_another_version_is_a_conflict_and_writes_nothing(api, cluster):
    job = await api.job("a")
    await cluster.patch(JOB, ref_of(job), annotating(job, "first"))

    with pytest.raises(ConflictError):
        await cluster.patch(JOB, ref_of(job), annotating(job, "second"))

    assert get_annotations((await api.get(api.jobs("a"))).body) == {"hold": "first"}


async def test_patch_of_a_deleted_object_is_a_conflict(api, cluster):
    job = await api.job("a")
    await api.delete(api.jobs("a"))

    with pytest.raises(ConflictError):
        await cluster.patch(JOB, ref_of(job), annotating(job, "why"))
