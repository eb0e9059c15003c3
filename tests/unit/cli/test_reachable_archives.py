"""The archives that a command opens."""

import gc
from typing import Any

import pytest

from shared.cli.deleters import in_force
from shared.cli.deleters.in_force import PolicyInForce
from shared.core.archive.copies import copy_of
from shared.core.policy.policy import Policy
from shared.errors import TryLaterError
from shared.safeguards.archive_ids import ReadArchiveIds
from tests.archives import CLUSTER, opened_archives
from tests.builders import JOB, ago, job

pytestmark = pytest.mark.anyio


class Force:
    """What is in force, as far as an archive needs it."""

    identity = opened_archives().identity
    archive_ids = ReadArchiveIds(())


FORCE: Any = Force()


@pytest.mark.filterwarnings("error")
async def test_connections_to_a_webhook_are_closed_at_the_end_of_a_command():
    archives = {"main": {"webhook": "http://127.0.0.1:9/"}}
    chosen = PolicyInForce(Policy.model_validate({"archives": archives}), name="policy.yaml", is_local=True)
    key = copy_of(job(complete=ago(60)), JOB, cluster=CLUSTER, secrets=False).key
    async with in_force.opened_archives(FORCE, chosen) as found:
        opened: Any = found
        for _ in range(2):
            archive = await opened.open("main", chosen.policy.archives["main"])
            with pytest.raises(TryLaterError):
                await archive.find(key)
        session = archive._session
        assert not session.closed
    assert session.closed
    gc.collect()


async def test_policy_without_archives_opens_none():
    async with in_force.opened_archives(FORCE, PolicyInForce(Policy())) as opened:
        assert opened is None
