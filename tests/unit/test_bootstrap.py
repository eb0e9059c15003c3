"""A world by its settings: what it says of itself, and where."""

import pytest

from shared.adapters.config.settings import read_settings
from shared.bootstrap.world import build
from shared.cli.process.connection import name_served
from shared.messages import SweepStep
from tests.fakes import FakeCluster, FakePublisher

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def swept(**settings):
    """The Events of a sweep."""
    world = build(read_settings(environment=settings))
    world.cluster, world.publisher = FakeCluster(), FakePublisher()
    await (await world.sweeper()).sweep(SweepStep())
    return [(str(ref), ref.namespace, reason) for ref, reason, _ in world.cluster.events]


async def test_a_sweep_is_told_where_the_installation_is():
    assert await swept(TTL_NAMESPACE="home") == [("Namespace home/home", "home", "Swept")]


async def test_made_up_last_steps_do_not_fill_etcd():
    world = build(read_settings(environment={"TTL_NAMESPACE": "home"}))
    world.cluster, world.publisher = FakeCluster(), FakePublisher()
    for number in range(20):
        step = SweepStep(kinds=("no/Kind",), sweep_id=f"made up {number}", whole=True)
        await (await world.sweeper()).sweep(step)
        await (await world.sweeper()).sweep(step.model_copy(update={"passed_over": ("no/Kind",)}))

    assert [reason for _, reason, _ in world.cluster.events] == ["Swept", "SweptInPart"]


@pytest.mark.parametrize("settings", [{}, {"TTL_NAMESPACE": "home", "TTL_DRY_RUN": "true"}])
async def test_nothing_is_written_without_a_place_or_in_a_dry_run(settings):
    assert await swept(**settings) == []


async def test_a_start_names_the_groups_of_kinds_that_share_a_name():
    world, cluster = build(read_settings(environment={})), FakeCluster()
    cluster.served_kinds = {"Backup", "JobSet"}
    told = (await name_served(world, cluster)).split(", ")
    assert {"backups.velero.io", "backups.postgresql.cnpg.io", "jobsets"} <= set(told)
    assert "backups" not in told
