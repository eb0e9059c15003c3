"""The children that are found are those that owner references lead to, in any graph and on pages of any size."""

import asyncio
from contextlib import aclosing

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.kinds.rule import Catalogue
from shared.core.values.objects import ref_of
from shared.evaluation.children import Children
from tests.builders import JOB, POD, kind_rules
from tests.fakes import FakeCluster

KINDS = Catalogue(tuple(kind_rules().values()))
JOBSET = kind_rules()["jobsets.jobset.x-k8s.io"]
NODES = st.integers(0, 24)

_GRAPHS = st.dictionaries(NODES, st.lists(st.integers(-1, 24), max_size=3), max_size=25)
"""The owners of each object; -1 is the root. Owners may be absent, and may own each other."""


def obj(number, owners):
    """An even object is a Job, an odd one is a Pod."""
    kind = POD if number % 2 else JOB
    references = [{"apiVersion": "v1", "kind": "Any", "name": "any", "uid": f"uid-{owner}"} for owner in owners]
    name = f"obj-{number * 7 % 25:02}"  # in another order than the numbers
    metadata = {"name": name, "namespace": "ci", "uid": f"uid-{number}", "ownerReferences": references}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata | {"resourceVersion": "1"}}


def owned_by_root(graph):
    found: set[int] = set()
    while more := {one for one, owners in graph.items() if one not in found and {*owners} & {-1, *found}}:
        found |= more
    return found


@settings(max_examples=30)
@given(graph=_GRAPHS, page_size=st.integers(1, 30))
def test_children_are_all_that_the_owner_references_lead_to(graph, page_size):
    async def find():
        cluster = FakeCluster(page_size=page_size)
        metadata = {"name": "set", "namespace": "ci", "uid": "uid--1", "resourceVersion": "1"}
        root = cluster.put({"apiVersion": JOBSET.api_version, "kind": "JobSet", "metadata": metadata})
        for number, owners in graph.items():
            cluster.put(obj(number, owners))
        async with aclosing(Children(cluster, KINDS).find(ref_of(root), JOBSET)) as pages:
            return [one.obj["metadata"]["uid"] async for page in pages for one in page.children]

    found = asyncio.run(find())

    assert sorted(found) == sorted(f"uid-{number}" for number in owned_by_root(graph))
