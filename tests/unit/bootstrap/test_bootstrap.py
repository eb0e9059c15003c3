"""The World that is built from settings: the Events that it writes, and where."""

import pytest

from shared.adapters.config.settings import read_settings
from shared.bootstrap.world import build
from shared.cli.input.target import name_served
from shared.messages import SweepStep
from tests.fakes import FakeCluster, FakePublisher

pytestmark = pytest.mark.anyio


async def swept(**settings):
    """The Events of a sweep."""
    world = build(read_settings(environment=settings))
    world.cluster, world.publisher = FakeCluster(), FakePublisher()
    await (await world.sweeper()).sweep(SweepStep())
    return [(str(ref), ref.namespace, reason) for ref, reason, _ in world.cluster.events]


async def test_sweep_writes_its_event_in_the_home_namespace():
    assert await swept(TTL_NAMESPACE="home") == [("Namespace home/home", "home", "Swept")]


async def test_forged_last_steps_cause_few_events():
    world = build(read_settings(environment={"TTL_NAMESPACE": "home"}))
    world.cluster, world.publisher = FakeCluster(), FakePublisher()
    for number in range(20):
        step = SweepStep(kinds=("no/Kind",), sweep_id=f"made up {number}", whole=True)
        await (await world.sweeper()).sweep(step)
        await (await world.sweeper()).sweep(step.model_copy(update={"passed_over": ("no/Kind",)}))

    assert [reason for _, reason, _ in world.cluster.events] == ["Swept", "SweptInPart"]


@pytest.mark.parametrize("settings", [{}, {"TTL_NAMESPACE": "home", "TTL_DRY_RUN": "true"}])
async def test_sweep_writes_no_event_without_a_home_namespace_or_in_a_dry_run(settings):
    assert await swept(**settings) == []


async def test_start_names_the_groups_of_kinds_with_one_plural():
    world, cluster = build(read_settings(environment={})), FakeCluster()
    cluster.served_kinds = {"Backup", "JobSet"}
    reported = (await name_served(world, cluster)).split(", ")
    assert {"backups.velero.io", "backups.postgresql.cnpg.io", "jobsets"} <= set(reported)
    assert "backups" not in reported
