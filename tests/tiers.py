"""How long each tier of tests took: a tier is a folder of tests/."""

from collections.abc import Mapping


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
