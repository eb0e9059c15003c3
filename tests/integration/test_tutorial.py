"""docs/tutorial.md as its reader types it: every command in order, against a real API server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.reader import Reader, commands_of, needs_kubectl, reading
from tests.snippets import TUTORIAL

pytestmark = [needs_kubectl, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    """Those that a namespace with Jobs needs."""
    return ["job-controller", "garbage-collector-controller", "namespace-controller"]


@pytest.fixture
def reader(server: Any, api: Any, tmp_path: Path) -> Iterator[Reader]:
    with reading(server, api, tmp_path) as reader:
        yield reader


def test_tutorial_works_in_order(reader: Reader) -> None:
    for command in commands_of(TUTORIAL):
        if ["demo"] not in list(command.own):
            reader.type(command)
    deleted = re.findall(r' deleted .*object="Job ttl-tutorial/(\w+)"', reader.leave())
    assert sorted(deleted) == ["hello", "report"]
