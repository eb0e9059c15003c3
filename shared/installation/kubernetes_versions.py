"""The versions of Kubernetes that this program is tested with, and those that accept its admission policies."""

import re
from collections.abc import Mapping
from typing import Any

from shared.core.values.objects import get_text

TESTED = ((1, 34), (1, 35), (1, 36), (1, 37))
"""As (major, minor), the oldest first: `make verify` runs the smoke tests on a real API server of each."""

OLDEST = (1, 31)
"""The oldest version that accepts each admission policy of this project, by emulation in an API server of 1.34.

The API is stable since 1.30. What CEL knows depends on the version: the function `flatten` is refused before 1.35.
"""

_NUMBER = re.compile(r"\d{1,6}")


def parse_version(body: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the version that an API server has, or the older one that it emulates, as (major, minor).

    Args:
        body: The answer to GET /version. A minor version of a provider may end with "+".

    Returns:
        None if the answer has no such numbers.
    """
    texts = [get_text(body, f"emulation{part}") or get_text(body, part.lower()) for part in ("Major", "Minor")]
    major, minor = (_NUMBER.match(text) for text in texts)
    return (int(major[0]), int(minor[0])) if major and minor else None


def describe_version(version: tuple[int, int]) -> str:
    """Return a version as Kubernetes writes it, such as `1.34`."""
    return ".".join(map(str, version))


if __name__ == "__main__":
    print(*map(describe_version, TESTED))  # noqa: T201 - .ci/versions reads it
