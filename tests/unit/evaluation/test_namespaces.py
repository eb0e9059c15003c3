"""The parts of Namespaces that are kept, within limits: annotations of the domain, and what a policy may read."""

import asyncio

import pytest

from shared.core.decision.decide import Context, Expire, Reason, decide
from shared.core.decision.namespaces import TEXT_MAX, namespace_of
from shared.errors import ForbiddenError
from shared.evaluation import namespaces_and_owners as module
from shared.evaluation.namespaces_and_owners import Namespaces
from tests.builders import JOB, NOW, ago, having, job, namespace, not_none
from tests.fakes import FakeCluster
from tests.unit.core.ttl.test_precedence import rules

pytestmark = pytest.mark.anyio

LARGE = "x" * (TEXT_MAX + 1)


def crowded(name="ci", **settings):
    """A namespace with a foreign annotation that is larger than the limit."""
    obj = namespace(name, labels={"team": "a"}, **settings)
    return having(obj, "metadata.annotations", {**obj["metadata"].get("annotations", {}), "example.com/notes": LARGE})


def decided(place, when):
    done = job(complete=ago(60))
    return decide(done, JOB, NOW, Context(rules(when=when, ttl="1s"), namespace_of(place)))


def test_annotations_of_the_domain_and_labels_are_kept_beside_large_annotations():
    kept = namespace_of(crowded(max_ttl="60s", exempt="true"))
    assert kept.characters < 200
    assert kept.is_exempt
    assert kept.max_ttl is not None
    assert kept.labels == {"team": "a"}


@pytest.mark.parametrize(
    ("when", "is_deleted"),
    [
        ("namespaceObject.metadata.labels.team == 'a'", True),
        ("namespaceObject.metadata.name == 'ci' && has(object.metadata.annotations) == false", True),
        ("namespaceObject.metadata.annotations['example.com/notes'] != 'y'", False),
        ("!has(namespaceObject.metadata.annotations)", False),
        ("!('x' in namespaceObject['metadata']['anno' + 'tations'])", False),
        ("object.spec.backoffLimit == 6", True),
    ],
)
def test_condition_on_dropped_annotations_has_no_result(when, is_deleted):
    """`!has(...)` of a dropped annotation must not delete."""
    decision = decided(crowded(), when)
    assert type(decision).__name__ == ("Expire" if is_deleted else "Ignore")


def test_condition_on_few_annotations_has_a_result():
    place = having(namespace(), "metadata.annotations", {"x": "y" * 100})
    assert type(decided(place, "namespaceObject.metadata.annotations['x'] != ''")).__name__ == "Expire"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (namespace(labels={f"l{n}": "x" * 63 for n in range(300)}), "labels: expected at most 16384"),
        (namespace(anything=LARGE), "annotations ttlafterfinished.dev/*: expected at most 16384"),
    ],
)
def test_namespace_with_too_large_metadata_keeps_its_objects(place, message):
    kept = namespace_of(place)
    assert kept.characters == 0
    assert message in kept.problem
    assert type(decided(place, "true")).__name__ == "Ignore"


@pytest.mark.parametrize(
    "when",
    [
        'namespaceObject.metadata.annotations["example.com/keep"] != "true"',
        '!(("annot" + "ations") in namespaceObject.metadata)',
        '!namespaceObject.metadata.exists(part, part.startsWith("annot"))',
        "size(namespaceObject.metadata) < 3",
        'namespaceObject == {"metadata": {"name": "ci", "labels": {"team": "a"}}}',
        'namespaceObject.metadata.labels.team == "a" && size(namespaceObject) == 1',
    ],
)
def test_condition_that_may_read_dropped_annotations_keeps_the_object(when):
    assert decided(crowded(), when).reason is Reason.INVALID_POLICY


@pytest.mark.parametrize(
    "when",
    [
        'namespaceObject.metadata.labels.team == "a"',
        'namespaceObject.metadata.labels["team"] == "a" && namespaceObject.metadata.name == "ci"',
        "has(namespaceObject.metadata.labels.team)",
    ],
)
def test_condition_on_labels_and_name_only_has_a_result(when):
    assert isinstance(decided(crowded(), when), Expire)


async def test_memory_of_all_namespaces_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "CHARACTERS_MAX", 10_000)
    cluster = FakeCluster()
    for number in range(30):
        cluster.put(having(namespace(f"ns-{number}"), "metadata.annotations", {"notes": "x" * 1_000}))
    known = Namespaces(cluster)
    await known.prime()
    remembered = [found for number in range(30) if (found := known.get_cached(f"ns-{number}"))]
    assert 0 < sum(one.characters for one in remembered) <= 10_000
    for number in range(30):
        assert not_none(await known.get(f"ns-{number}")).annotations == {"notes": "x" * 1_000}


async def test_namespace_that_is_listed_again_counts_once(monkeypatch):
    monkeypatch.setattr(module, "CHARACTERS_MAX", 2_000)
    monkeypatch.setattr(module, "NAMESPACE_AGE_SECONDS_MAX", 0.0)
    cluster = FakeCluster()
    cluster.put(having(namespace("ns"), "metadata.annotations", {"notes": "x" * 1_000}))
    known = Namespaces(cluster)
    for _ in range(5):
        await known.prime()
    assert known._characters == len("notes") + 1_000


async def test_one_list_serves_concurrent_callers():
    cluster = FakeCluster()
    known = Namespaces(cluster)
    await asyncio.gather(*(known.prime() for _ in range(5)))
    assert [call.verb for call in cluster.namespace_reads] == ["list-namespaces"]


async def test_names_are_found_by_one_list_that_is_cached():
    cluster = FakeCluster()
    cluster.put(namespace("ci", unused="true"))
    cluster.put(namespace("web"))
    known = Namespaces(cluster)

    names = await known.find_names(lambda one: one.unused is True)
    await known.prime()

    assert names == {"ci"}
    assert known.get_cached("web") is not None
    assert [call.verb for call in cluster.namespace_reads] == ["list-namespaces"]


async def test_names_of_a_process_for_one_namespace_are_found_without_a_list():
    cluster = FakeCluster()
    cluster.put(namespace("ci", unused="true"))
    known = Namespaces(cluster, only="ci")
    assert await known.find_names(lambda one: one.unused is True) == {"ci"}
    assert await known.find_names(lambda one: one.unused is False) == frozenset()
    assert [call.verb for call in cluster.namespace_reads] == ["get-namespace"]


async def test_names_that_may_not_be_listed_raise():
    cluster = FakeCluster()
    cluster.fail("list-namespaces", ForbiddenError("no right"))
    with pytest.raises(ForbiddenError):
        await Namespaces(cluster).find_names(lambda _: True)
