"""Permits of the timer engine: hanging kinds and namespaces leave permits for others."""

import pytest

from shared.adapters.timers.delivery import FAILING_MAX, FAILING_PERMITS, Permits

TOTAL = 96


def fill(permits: Permits, shares) -> dict[tuple[str, str], int]:
    """Give a permit to each in turn until none may have another."""
    held = dict.fromkeys(shares, 0)
    while taking := [share for share in held if permits.may_take(share)]:
        for share in taking:
            if permits.may_take(share):
                permits.take(share)
                held[share] += 1
    return held


def test_single_share_gets_a_third_of_the_permits():
    permits = Permits(TOTAL)
    assert fill(permits, [("v1 Pod", "ci")]) == {("v1 Pod", "ci"): TOTAL // 3}


@pytest.mark.parametrize("kinds", [1, 2, 5])
@pytest.mark.parametrize("namespaces", [1, 3, 400])
def test_hanging_kinds_leave_a_permit_for_another_kind(kinds, namespaces):
    permits = Permits(TOTAL)
    fill(permits, [(f"v1 K{kind}", f"n{namespace}") for kind in range(kinds) for namespace in range(namespaces)])
    assert permits.free > 0
    assert permits.may_take(("v1 Pod", "n0"))


@pytest.mark.parametrize("namespaces", [1, 3])
def test_hanging_namespaces_leave_a_permit_for_another_namespace_of_the_kind(namespaces):
    permits = Permits(TOTAL)
    fill(permits, [("v1 Pod", f"n{namespace}") for namespace in range(namespaces)])
    assert permits.may_take(("v1 Pod", "another"))


def test_failed_share_gets_few_permits_until_it_succeeds():
    share, permits = ("v1 Pod", "ci"), Permits(TOTAL)
    permits.take(share)
    permits.give(share, failed=True)
    assert fill(permits, [share]) == {share: FAILING_PERMITS}
    permits.give(share, failed=False)
    assert fill(permits, [share])[share] > FAILING_PERMITS


def test_released_permit_is_free():
    share, permits = ("v1 Pod", "ci"), Permits(1)
    permits.take(share)
    assert (permits.free, permits.may_take(share)) == (0, False)
    permits.give(share, failed=False)
    assert (permits.free, permits.may_take(share)) == (1, True)


def test_failing_shares_are_bounded():
    permits = Permits(TOTAL)
    for number in range(FAILING_MAX + 1):
        permits.take(("v1 Pod", f"n{number}"))
        permits.give(("v1 Pod", f"n{number}"), failed=True)
    assert fill(permits, [("v1 Pod", "n0")]) == {("v1 Pod", "n0"): TOTAL // 3}
    assert fill(Permits(TOTAL), [("v1 Pod", "n1")]) != fill(permits, [("v1 Pod", "n1")])
