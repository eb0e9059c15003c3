"""Generations: which objects were left behind by a tool that makes a new one for each change."""

import pytest

from shared.core.objects import format_instant
from shared.core.unused.generations import Generations, UsedGenerations
from tests.builders import LONG_AGO, NOW, ago
from tests.unused import config_map

OLD, NEW = ago(3600), ago(60)


WEB = {"app.kubernetes.io/instance": "web"}


def made(name, at=OLD, *, labels=WEB, **metadata):
    return config_map(name, used=None, creationTimestamp=format_instant(at), labels=labels, **metadata)


def find_newer(obj, *others, used):
    generations = Generations()
    for one in (obj, *others):
        generations.add(one)
    return UsedGenerations(generations, lambda kind, namespace, name: name in used).find_newer(obj)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("web-7fk2m5t8h9", "web-2b4c6d8f9g"),
        ("web-v1", "web-v2"),
        ("web-9", "web-10"),
        ("web.v3", "web.v11"),
        ("web-rev-00001", "web-rev-00002"),
        ("kafka-rev7", "kafka-rev8"),
    ],
)
def test_older_generation_of_a_used_object_is_found(older, newer):
    assert find_newer(made(older), made(newer, NEW), used={newer}) == newer


FIRST = made("web-v1")
KEPT = {
    "the newer one is not used": (FIRST, [made("web-v2", NEW)], set()),
    "the newer one does not exist": (FIRST, [], {"web-v2"}),
    "another name": (FIRST, [made("api-v2", NEW)], {"api-v2"}),
    "another form": (made("web-1"), [made("web-v2", NEW)], {"web-v2"}),
    "a name without a suffix": (made("web"), [made("web-2", NEW)], {"web-2"}),
    "a word that is no hash": (made("web-production"), [made("web-2b4c6d8f9g", NEW)], {"web-2b4c6d8f9g"}),
    "other labels": (FIRST, [made("web-v2", NEW, labels={"app": "web"})], {"web-v2"}),
    "numbers without labels, as of tenants": (made("web-1", labels=None), [made("web-2", NEW, labels=None)], {"web-2"}),
    "numbers of which the newest is not used": (FIRST, [made("web-v2", NEW), made("web-v3", NEW)], {"web-v2"}),
    "another namespace": (FIRST, [made("web-v2", NEW, namespace="web")], {"web-v2"}),
    "another kind": (FIRST, [made("web-v2", NEW) | {"kind": "Secret"}], {"web-v2"}),
    "made at the same time, as one for each replica": (FIRST, [made("web-v2", OLD)], {"web-v2"}),
    "a lower number that was made later": (made("web-v1", NEW), [made("web-v2", OLD)], {"web-v2"}),
    "the newest, after a rollback": (made("web-v3", NEW), [made("web-v2")], {"web-v2"}),
    "between two that are used": (
        made("web-v2"),
        [made("web-v1", LONG_AGO), made("web-v3", NEW)],
        {"web-v1", "web-v3"},
    ),
    "its age is unknown": (
        FIRST | {"metadata": {"name": "web-v1", "namespace": "ci"}},
        [made("web-v2", NEW)],
        {"web-v2"},
    ),
}


@pytest.mark.parametrize(("obj", "others", "used"), KEPT.values(), ids=KEPT)
def test_object_is_no_older_generation(obj, others, used):
    assert find_newer(obj, *others, used=used) == ""


def test_hash_needs_no_labels():
    older, newer = made("web-7fk2m5t8h9", labels=None), made("web-2b4c6d8f9g", NEW, labels=None)
    assert find_newer(older, newer, used={"web-2b4c6d8f9g"}) == "web-2b4c6d8f9g"


def test_label_of_the_announcement_does_not_count():
    announced = made("web-v1", labels=WEB | {"ttlafterfinished.dev/deletion-announced": "true"})
    assert find_newer(announced, made("web-v2", NOW), used={"web-v2"}) == "web-v2"
