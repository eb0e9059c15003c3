"""The memory of objects stays within its bound, and forgets the oldest first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.kubernetes.watched_versions import Memory

STEPS = st.lists(st.tuples(st.sampled_from("abcde"), st.none() | st.binary(max_size=40)), max_size=60)


def test_the_last_version_is_remembered():
    memory = Memory()
    memory.remember("a", b"1")
    memory.remember("a", b"2")

    assert memory.get("a") == b"2"
    assert memory.get("b") is None


def test_what_is_forgotten_is_gone_and_may_be_forgotten_again():
    memory = Memory()
    memory.remember("a", b"1")
    memory.forget("a")
    memory.forget("a")

    assert memory.get("a") is None


def test_the_oldest_goes_first_and_a_new_version_is_not_old():
    memory = Memory(bytes_max=3)
    for uid in "abca":
        memory.remember(uid, b"x")
    memory.remember("d", b"x")

    assert [uid for uid in "abcd" if memory.get(uid)] == ["a", "c", "d"]


@pytest.mark.parametrize("size", [11, 1_000])
def test_an_object_larger_than_the_bound_is_not_kept(size):
    memory = Memory(bytes_max=10)
    memory.remember("a", b"x")
    memory.remember("b", b"x" * size)

    assert memory.get("b") is None
    memory.remember("c", b"x" * 10)
    assert memory.get("c")


@given(STEPS, st.integers(0, 60))
def test_never_beyond_the_bound_and_never_another_version(steps, bytes_max):
    memory, last = Memory(bytes_max=bytes_max), {}
    for uid, obj in steps:
        if obj is None:
            memory.forget(uid)
        else:
            memory.remember(uid, obj)
        last[uid] = obj
        kept = {each: memory.get(each) for each in "abcde" if memory.get(each) is not None}
        assert sum(map(len, kept.values())) <= bytes_max
        assert all(last[each] == obj for each, obj in kept.items())
        if obj is not None and len(obj) <= bytes_max:
            assert memory.get(uid) == obj
