"""The tiers of tests, which are the folders of tests/: which start first, and how long each took."""

from collections.abc import Mapping

SLOW = ("simulation", "integration", "contract", "crash", "manifests")
"""The tiers that start first: a slow file that starts last would keep one worker busy while the others wait."""


def start_order(nodeid: str) -> int:
    """Return the place of a test's tier in the order in which the tiers start."""
    tier = tier_of(nodeid)
    return SLOW.index(tier) if tier in SLOW else len(SLOW)


def tier_of(nodeid: str) -> str:
    """Return the tier of a test, by the id that pytest gives it.

    The id `tests/unit/core/test_decide.py::test_x` has the tier `unit`. A test outside tests/ has the tier `other`.
    """
    folders = nodeid.split("::", 1)[0].split("/")[:-1]
    return folders[1] if len(folders) > 1 and folders[0] == "tests" else "other"


def summarize(seconds: Mapping[str, float]) -> list[str]:
    """Return a line for each tier, the slowest tier first.

    With parallel workers the seconds are the sum over all workers, so they exceed the time that you waited.
    """
    width = max(map(len, seconds), default=0)
    slowest_first = sorted(seconds.items(), key=lambda tier: (-tier[1], tier[0]))
    return [f"{took:8.1f}s {name:<{width}}".rstrip() for name, took in slowest_first]
