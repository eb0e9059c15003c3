"""What is remembered of the searches for children is bounded, and shared fairly by the namespaces."""

import asyncio
from collections import Counter
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from shared.evaluation import owned_lists
from shared.evaluation.owned_lists import Owned, OwnedLists, _Question
from tests.fakes import FakeCluster

NAMES_MAX = 100


@given(asked=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, NAMES_MAX)), max_size=30))
def test_namespace_with_at_most_its_equal_share_loses_nothing_and_the_sum_stays_within_the_limit(asked):
    async def remember_all() -> None:
        owned = OwnedLists[list[Owned]](FakeCluster(), len)

        def held() -> Counter[str]:
            return sum((Counter({one.namespace: one.names}) for one in owned._asked.values()), Counter())

        for number, (namespace, names) in enumerate(asked):
            before = held() + Counter({namespace: names})
            owned._remember(_Question((), list, f"{number}", namespace, names=names))
            after = held()
            assert after.total() <= NAMES_MAX
            assert after == owned._names
            assert all(after[one] == count for one, count in before.items() if count <= NAMES_MAX / len(before))

    with patch.object(owned_lists, "ANSWERED_NAMES_MAX", NAMES_MAX):
        asyncio.run(remember_all())
