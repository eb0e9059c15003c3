"""The gate of an unused object that a policy rule has archived."""

from dataclasses import replace
from datetime import timedelta

import pytest

from shared.core.archive.archiving import ArchiveFact
from shared.core.archive.gate import ArchiveProof, find_unarchived
from tests.builders import NOW, ago
from tests.usage import archived_policy, config_map

OBJ = config_map()
POLICY = archived_policy(grace="1h")
(RULE,) = POLICY.rules
FACT = ArchiveFact("main", "5c6b0d2e", "42", ago(3600), is_read_back=True)
PROOF = ArchiveProof(FACT, POLICY.archives["main"], NOW)


def test_object_that_the_archive_holds_for_its_grace_may_be_deleted():
    assert find_unarchived(OBJ, RULE, POLICY, PROOF) == ""


def test_rule_without_an_archive_needs_no_proof():
    assert find_unarchived(OBJ, RULE.model_copy(update={"archive": None}), POLICY, None) == ""


def test_grace_of_zero_ends_at_the_acknowledgement_even_if_the_clock_of_the_store_is_ahead():
    policy = archived_policy()
    proof = replace(PROOF, fact=replace(FACT, acknowledged_at=NOW + timedelta(seconds=1)))

    assert find_unarchived(OBJ, policy.rules[0], policy, proof) == ""


@pytest.mark.parametrize(
    "proof",
    [
        None,
        replace(PROOF, destination=archived_policy(url="file:///other").archives["main"]),
        replace(PROOF, seen_at=ago(1)),
        *(
            replace(PROOF, fact=replace(FACT, **fields))
            for fields in (
                {"resource_version": "41"},
                {"uid": "other"},
                {"to": "other"},
                {"acknowledged_at": None},
                {"is_read_back": False},
            )
        ),
    ],
    ids=["none", "another archive", "grace", "version", "uid", "name", "not stored", "not read back"],
)
def test_object_is_kept_unless_each_part_of_the_proof_is_there(proof):
    assert find_unarchived(OBJ, RULE, POLICY, proof) != ""
