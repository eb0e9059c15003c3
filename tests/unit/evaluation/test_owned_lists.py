"""Questions that share LISTs: each one is answered or ends with an error, however its LIST and its search end."""

import asyncio
import weakref

import pytest

from shared.core.kinds.rule import Catalogue
from shared.evaluation import owned_lists
from shared.evaluation.owned_lists import OwnedLists
from tests.builders import JOB, POD, kind_rules
from tests.fakes import FakeCluster

pytestmark = pytest.mark.anyio

KINDS = Catalogue(tuple(kind_rules().values()))
LIST_SECONDS = 20


class SlowCluster(FakeCluster):
    """Each LIST takes some seconds; the ones that are to fail then raise a ValueError, as a defect would."""

    to_fail = 0

    async def list_page(self, *args, **options):
        page = await super().list_page(*args, **options)
        await asyncio.sleep(LIST_SECONDS)
        if self.to_fail:
            self.to_fail -= 1
            raise ValueError("defect of a LIST")
        return page

    @property
    def lists(self):
        return self.counted()["list-metadata"]


@pytest.fixture
def cluster():
    return SlowCluster()


@pytest.fixture
def owned(cluster):
    return OwnedLists(cluster, len)


def totals(lists):
    return [one.total for one in lists]


def defect(lists):
    try:
        return lists[len(lists)]
    except IndexError as error:
        raise ValueError(f"defect of a search in {len(lists)} lists") from error


async def ask(owned, find=totals, *, key="", namespace="ci", seconds=10 * LIST_SECONDS, rules=(POD,)):
    async with asyncio.timeout(seconds):
        return await owned.get(rules, namespace, find, key=key)


@pytest.mark.parametrize("key", ["", "uid/1"])
async def test_defect_of_a_search_ends_its_question_and_the_next_attempt_asks_again(cluster, owned, key):
    with pytest.raises(ValueError, match="defect of a search in 1 lists"):
        await ask(owned, defect, key=key)

    assert await ask(owned, key=key) == [0]
    assert cluster.lists == 2
    await asyncio.sleep(1)
    assert (len(owned._asked), owned._names.total(), len(owned._queues)) == (0, 0, 0)


async def test_defect_of_a_search_is_raised_by_all_who_share_the_question_and_by_no_other(cluster, owned):
    same = [ask(owned, defect, key="uid-a/1") for _ in range(2)]
    found = await asyncio.gather(*same, ask(owned, key="uid-b/1"), ask(owned), return_exceptions=True)

    assert [type(one) for one in found] == [ValueError, ValueError, list, list]
    assert cluster.lists <= 2


async def test_defect_of_a_search_without_a_caller_is_raised_once_by_the_next_attempt(cluster, owned):
    """It would never be seen if its LIST always takes longer than an attempt."""
    with pytest.raises(TimeoutError):
        await ask(owned, defect, key="uid/1", seconds=LIST_SECONDS / 2)
    await asyncio.sleep(LIST_SECONDS)

    with pytest.raises(ValueError, match="defect of a search"):
        await ask(owned, key="uid/1")
    assert await ask(owned, key="uid/1") == [0]
    assert cluster.lists == 2


async def test_caller_that_is_cancelled_leaves_the_question_to_another_one_with_its_key(cluster, owned):
    cancelled, waiting = (asyncio.ensure_future(ask(owned, key="uid/1")) for _ in range(2))
    await asyncio.sleep(LIST_SECONDS / 2)
    cancelled.cancel()

    assert await waiting == [0]
    assert (cluster.lists, len(owned._asked), owned._names.total()) == (1, 0, 0)


@pytest.mark.parametrize(("find", "to_fail", "place"), [(defect, 0, "defect"), (totals, 1, "list_page")])
async def test_lists_are_dropped_after_a_defect(cluster, owned, monkeypatch, find, to_fail, place):
    cluster.to_fail = to_fail
    live: weakref.WeakSet[owned_lists.Owned] = weakref.WeakSet()

    class Counted(owned_lists.Owned):
        def __init__(self):
            super().__init__()
            live.add(self)

    monkeypatch.setattr(owned_lists, "Owned", Counted)
    with pytest.raises(ValueError, match="defect of a") as caught:
        await ask(owned, find, key="uid/1")
    await asyncio.sleep(1)

    assert not live
    assert f", in {place}\n" in "".join(caught.value.__notes__)  # its place is still known


async def test_defect_of_a_shared_list_ends_all_questions_and_the_next_attempts_ask_again(cluster, owned):
    cluster.to_fail = 1
    keys = ["", "uid-a/1", "uid-a/1", "uid-b/1"]
    asking = [asyncio.ensure_future(ask(owned, key=key)) for key in keys]
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(one) for one in found] == [ValueError] * len(keys)
    assert (len(owned._asked), owned._names.total(), len(owned._queues)) == (0, 0, 0)

    again = await asyncio.gather(*(ask(owned, key=key, rules=(POD, JOB)) for key in keys))
    assert again == [[0, 0]] * len(keys)
    assert 1 < cluster.lists <= 5


@pytest.mark.parametrize("first", ["crowd", "quiet"])
async def test_namespace_with_many_questions_pushes_out_no_question_of_another(cluster, owned, monkeypatch, first):
    monkeypatch.setattr(owned_lists, "ANSWERED_NAMES_MAX", 10 * owned_lists._QUESTION_NAMES)
    asked = [("crowd", f"uid-{number}/1") for number in range(30)]
    asked.insert(0 if first == "quiet" else len(asked), ("quiet", "uid/1"))
    for namespace, key in asked:
        owned.begin((POD,), namespace, totals, key=key)
        with pytest.raises(TimeoutError):
            await ask(owned, key=key, namespace=namespace, seconds=0.1)
    await asyncio.sleep(3 * LIST_SECONDS)

    assert owned.is_answered("uid/1")
    assert sum(owned.is_answered(key) for _, key in asked) <= 10
