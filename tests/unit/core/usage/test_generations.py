"""Generations: which objects were left behind by a tool that makes a new one for each change."""

import pytest

from shared.core.usage.passes import Generations, UsedGenerations
from shared.core.values.objects import format_instant
from tests.builders import LONG_AGO, NOW, ago
from tests.usage import config_map, having_use

OLD, SOON, NEW = ago(3600), ago(3541), ago(60)


WEB = {"app.kubernetes.io/instance": "web"}


def made(name, at=OLD, *, labels=WEB, **metadata):
    return config_map(name, used=None, creationTimestamp=format_instant(at), labels=labels, **metadata)


def find_newer(obj, *others, used=()):
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
    "made by one installation, as one for each replica": (FIRST, [made("web-v2", SOON)], {"web-v2"}),
    "a Secret with a number, which may be a key": (
        made("web-v1") | {"kind": "Secret"},
        [made("web-v2", NEW) | {"kind": "Secret"}],
        {"web-v2"},
    ),
    "the last of several numbers, as of an address": (made("web-10-4"), [made("web-10-7", NEW)], {"web-10-7"}),
    "digits alone, as of a tenant": (made("web-2498765428"), [made("web-8875224469", NEW)], {"web-8875224469"}),
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


def test_newer_generation_that_was_seen_used_is_enough():
    """Otherwise the mark would come and go with each run of a Job that uses the newest generation."""
    newer = having_use(made("web-v2", NEW), NEW)
    assert find_newer(FIRST, newer) == "web-v2"
    assert find_newer(FIRST, newer, made("web-v3", NOW)) == ""
    assert find_newer(made("web-v2", ago(600)), having_use(made("web-v3", NEW), NEW), FIRST, used={"web-v1"}) == ""


def test_hash_needs_no_labels():
    older, newer = made("web-7fk2m5t8h9", labels=None), made("web-2b4c6d8f9g", NEW, labels=None)
    assert find_newer(older, newer, used={"web-2b4c6d8f9g"}) == "web-2b4c6d8f9g"


def test_label_of_the_announcement_does_not_count():
    announced = made("web-v1", labels=WEB | {"ttlafterfinished.dev/deletion-announced": "true"})
    assert find_newer(announced, made("web-v2", NOW), used={"web-v2"}) == "web-v2"
