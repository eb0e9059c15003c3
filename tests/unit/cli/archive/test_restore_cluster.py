"""`archive restore` of an object of another cluster: a question on a terminal, else an error."""

from types import SimpleNamespace
from typing import Any

import click
import pytest

from shared.cli.archive import restore
from shared.cli.archive.source import ArchiveSource
from shared.core.archive.document import Document, Record, canonical
from shared.core.archive.identity import ArchiveCluster
from shared.core.policy.archives import ArchiveDestination
from shared.core.policy.policy import NO_POLICY
from tests.archives import CLUSTER, FakeArchive, key_of
from tests.builders import NOW, job, shipped_kinds

STAGING = ArchiveCluster("staging", "3f2c1a9b-0d3e-4f5a-8b6c-1d2e3f405162")


def check(here: ArchiveCluster | None, asked: str = "") -> None:
    archive: Any = FakeArchive()
    unknown = "" if here else "403; grant get on namespace kube-system"
    place = ArchiveDestination(url="file:///a")
    source = ArchiveSource(archive, "main", place, CLUSTER.part, shipped_kinds(), NO_POLICY, "staging", here, unknown)
    document = Document(Record(archived_at=NOW, cluster_id=CLUSTER.id), canonical(job()))
    key = key_of(job(), document.digest, day=NOW.date())
    restore._check_cluster(source, key, document, asked=asked, server="https://a")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions on a terminal."""
    found: list[str] = []
    monkeypatch.setattr(restore, "confirm", found.append)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    return found


@pytest.mark.parametrize(
    ("here", "named", "is_asked"),
    [
        (STAGING, "", True),
        (None, "", True),
        (CLUSTER, "", False),
        (STAGING, "prod", True),
        (None, "prod", True),
        (None, CLUSTER.part, False),
    ],
)
def test_object_of_another_cluster_is_confirmed(
    here: ArchiveCluster | None, named: str, is_asked: bool, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(here, named)
    assert len(asked) == is_asked
    if is_asked:
        assert f"from cluster {CLUSTER} to this cluster, {here or 'staging (id unknown)'} at https://a" in asked[0]
        monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
        with pytest.raises(click.UsageError, match=f"nothing was restored: to do that, set --cluster {CLUSTER.part}"):
            check(here, named)
        assert len(asked) == 1
