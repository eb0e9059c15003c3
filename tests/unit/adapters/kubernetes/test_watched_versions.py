"""The memory of watched objects stays within its bound, and drops the oldest first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.kubernetes.cluster import Memory

STEPS = st.lists(st.tuples(st.sampled_from("abcde"), st.none() | st.binary(max_size=40)), max_size=60)


def test_memory_returns_the_last_version():
    memory = Memory()
    memory.remember("a", b"1")
    memory.remember("a", b"2")

    assert memory.get("a") == b"2"
    assert memory.get("b") is None


def test_memory_forgets_a_version_once_or_twice():
    memory = Memory()
    memory.remember("a", b"1")
    memory.forget("a")
    memory.forget("a")

    assert memory.get("a") is None


def test_memory_drops_the_version_written_longest_ago_first():
    memory = Memory(bytes_max=3)
    for uid in "abca":
        memory.remember(uid, b"x")
    memory.remember("d", b"x")

    assert [uid for uid in "abcd" if memory.get(uid)] == ["a", "c", "d"]


@pytest.mark.parametrize("size", [11, 1_000])
def test_memory_does_not_store_an_object_larger_than_its_bound(size):
    memory = Memory(bytes_max=10)
    memory.remember("a", b"x")
    memory.remember("b", b"x" * size)

    assert memory.get("b") is None
    memory.remember("c", b"x" * 10)
    assert memory.get("c")


@given(STEPS, st.integers(0, 60))
def test_memory_stays_within_its_bound_and_returns_only_last_versions(steps, bytes_max):
    memory, last = Memory(bytes_max=bytes_max), {}
    for uid, obj in steps:
        if obj is None:
            memory.forget(uid)
        else:
            memory.remember(uid, obj)
        last[uid] = obj
        kept = {each: found for each in "abcde" if (found := memory.get(each)) is not None}
        assert sum(map(len, kept.values())) <= bytes_max
        assert all(last[each] == obj for each, obj in kept.items())
        if obj is not None and len(obj) <= bytes_max:
            assert memory.get(uid) == obj
