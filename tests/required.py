"""What a test needs of the machine: without it the test is skipped, and in CI it fails."""

import os
from pathlib import Path
from typing import TypeVar

import pytest

from shared.devserver.real_servers import ASSETS_VARIABLE, find_assets

PLACES = f"${ASSETS_VARIABLE} or /usr/local/kubebuilder/bin"
"""Where the binaries of servers are looked for, as the reasons say it."""

_T = TypeVar("_T")


def required(found: _T | None, reason: str, *, in_ci: bool = True) -> _T:
    """Return what was found.

    Args:
        found: What the test needs; None if the machine has none.
        reason: What is missing, and where it was looked for.
        in_ci: Whether CI must have it.
    """
    if found is not None:
        return found
    if in_ci and os.getenv("CI"):
        pytest.fail(f"{reason}, which CI must have")
    pytest.skip(reason)


def required_assets() -> Path:
    """The folder with the binaries of etcd and kube-apiserver."""
    return required(find_assets(), f"no etcd and kube-apiserver in {PLACES}")
