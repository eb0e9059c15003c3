"""The cluster in the keys of an archive: its name, and the first digits of its id."""

import pytest

from shared.core.archive.identity import ArchiveCluster, SourceCluster, check_cluster_id, parse_cluster_part

ID = "3f2c1a9b-0d3e-4f5a-8b6c-1d2e3f405162"


@pytest.mark.parametrize(
    ("part", "name", "short_id"),
    [
        ("prod.3f2c1a9b", "prod", "3f2c1a9b"),
        ("eu.prod.3f2c1a9b", "eu.prod", "3f2c1a9b"),
        ("prod", "prod", ""),
        ("eu.prod", "eu.prod", ""),
        ("prod.3F2C1A9B", "prod.3F2C1A9B", ""),
        (".3f2c1a9b", ".3f2c1a9b", ""),
    ],
)
def test_part_of_a_key_is_a_name_and_an_id(part: str, name: str, short_id: str) -> None:
    found = parse_cluster_part(part)

    assert found == (name, short_id)
    assert found.is_of(ID) == bool(short_id)
    assert not found.is_of(ID.replace("3", "4"))
    assert parse_cluster_part(ArchiveCluster(part, ID).part) == (part, ID[:8])


OTHER = ID.replace("3", "4")
HERE = ArchiveCluster("default", ID)


@pytest.mark.parametrize(
    ("origin", "asked", "is_here", "is_named"),
    [
        (SourceCluster("default.3f2c1a9b", ID), "", True, False),
        (SourceCluster("renamed.3f2c1a9b", ID), "", True, False),
        (SourceCluster("default.4f2c1a9b", OTHER), "", False, False),
        (SourceCluster("default.4f2c1a9b", OTHER), "default", False, False),
        (SourceCluster("default.4f2c1a9b", OTHER), "default.4f2c1a9b", False, True),
        (SourceCluster("default.3f2c1a9b", OTHER), "", False, False),
        (SourceCluster("prod.4f2c1a9b", OTHER), "", False, False),
        (SourceCluster("prod.4f2c1a9b", OTHER), "prod", False, False),
        (SourceCluster("prod.4f2c1a9b", OTHER), "prod.4f2c1a9b", False, True),
        (SourceCluster("default", ""), "", False, False),
        (SourceCluster("default", ""), "default", False, True),
    ],
)
def test_document_of_another_cluster_has_to_be_named(
    origin: SourceCluster, asked: str, is_here: bool, is_named: bool
) -> None:
    """A name names no cluster that has an id: this cluster may have the same name."""
    assert (origin.is_of(HERE), origin.is_named_by(asked)) == (is_here, is_named)
    assert not origin.is_of(None)


@pytest.mark.parametrize("uid", ["", "3f2c1a9b", ID.upper(), f"{ID}0", "../0d3e-4f5a-8b6c-1d2e3f405162"])
def test_id_of_a_cluster_is_a_uuid(uid: str) -> None:
    assert check_cluster_id(ID) == ID
    with pytest.raises(ValueError, match="expected a UUID"):
        check_cluster_id(uid)
