"""Places of the timer engine: hanging kinds and namespaces leave places for others."""

import pytest

from shared.adapters.timers.places import FAILING_MAX, FAILING_PLACES, Places

TOTAL = 96


def fill(places: Places, shares) -> dict[tuple[str, str], int]:
    """Give a place to each in turn until none may have another."""
    held = dict.fromkeys(shares, 0)
    while taking := [share for share in held if places.may_take(share)]:
        for share in taking:
            if places.may_take(share):
                places.take(share)
                held[share] += 1
    return held


def test_single_share_gets_a_third_of_the_places():
    places = Places(TOTAL)
    assert fill(places, [("v1 Pod", "ci")]) == {("v1 Pod", "ci"): TOTAL // 3}


@pytest.mark.parametrize("kinds", [1, 2, 5])
@pytest.mark.parametrize("namespaces", [1, 3, 400])
def test_hanging_kinds_leave_a_place_for_another_kind(kinds, namespaces):
    places = Places(TOTAL)
    fill(places, [(f"v1 K{kind}", f"n{namespace}") for kind in range(kinds) for namespace in range(namespaces)])
    assert places.free > 0
    assert places.may_take(("v1 Pod", "n0"))


@pytest.mark.parametrize("namespaces", [1, 3])
def test_hanging_namespaces_leave_a_place_for_another_namespace_of_the_kind(namespaces):
    places = Places(TOTAL)
    fill(places, [("v1 Pod", f"n{namespace}") for namespace in range(namespaces)])
    assert places.may_take(("v1 Pod", "another"))


def test_failed_share_gets_few_places_until_it_succeeds():
    share, places = ("v1 Pod", "ci"), Places(TOTAL)
    places.take(share)
    places.give(share, failed=True)
    assert fill(places, [share]) == {share: FAILING_PLACES}
    places.give(share, failed=False)
    assert fill(places, [share])[share] > FAILING_PLACES


def test_released_place_is_free():
    share, places = ("v1 Pod", "ci"), Places(1)
    places.take(share)
    assert (places.free, places.may_take(share)) == (0, False)
    places.give(share, failed=False)
    assert (places.free, places.may_take(share)) == (1, True)


def test_failing_shares_are_bounded():
    places = Places(TOTAL)
    for number in range(FAILING_MAX + 1):
        places.take(("v1 Pod", f"n{number}"))
        places.give(("v1 Pod", f"n{number}"), failed=True)
    assert fill(places, [("v1 Pod", "n0")]) == {("v1 Pod", "n0"): TOTAL // 3}
    assert fill(Places(TOTAL), [("v1 Pod", "n1")]) != fill(places, [("v1 Pod", "n1")])
