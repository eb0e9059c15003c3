"""A process that is built from a configuration: the ports that it makes, and the Events that it writes."""

from dataclasses import FrozenInstanceError

import pytest

from shared.adapters.config.settings import read_settings
from shared.adapters.timers.limits import DELIVERY_SECONDS
from shared.bootstrap import process as process_module
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.cli.input.target import name_served
from shared.messages import SweepStep
from tests.fakes import FakeCluster, FakePublisher

pytestmark = pytest.mark.anyio


def config_of(**settings):
    return read_config(read_settings(environment=settings), cluster=FakeCluster(), publisher=FakePublisher())


async def swept(**settings):
    """The Events of a sweep."""
    config = config_of(**settings)
    await (await build(config).sweeper()).sweep(SweepStep())
    return [(str(ref), ref.namespace, reason) for ref, reason, _ in config.cluster.events]


async def test_sweep_writes_its_event_in_the_home_namespace():
    assert await swept(TTL_NAMESPACE="home") == [("Namespace home/home", "home", "Swept")]


async def test_forged_last_steps_cause_few_events():
    config = config_of(TTL_NAMESPACE="home")
    process = build(config)
    for number in range(20):
        step = SweepStep(kinds=("no/Kind",), sweep_id=f"made up {number}", whole=True)
        await (await process.sweeper()).sweep(step)
        await (await process.sweeper()).sweep(step.model_copy(update={"passed_over": ("no/Kind",)}))

    assert [reason for _, reason, _ in config.cluster.events] == ["Swept", "SweptInPart"]


@pytest.mark.parametrize("settings", [{}, {"TTL_NAMESPACE": "home", "TTL_DRY_RUN": "true"}])
async def test_sweep_writes_no_event_without_a_home_namespace_or_in_a_dry_run(settings):
    assert await swept(**settings) == []


async def test_start_names_the_groups_of_kinds_with_one_plural():
    config = config_of()
    config.cluster.serve_only(*(rule for rule in config.kinds.rules if rule.kind in {"Backup", "JobSet"}))
    reported = (await name_served(config, config.cluster)).split(", ")
    assert {"backups.velero.io", "backups.postgresql.cnpg.io", "jobsets"} <= set(reported)
    assert "backups" not in reported


def test_process_and_its_configuration_cannot_be_changed():
    config = config_of()
    with pytest.raises(FrozenInstanceError):
        config.namespace = "other"
    with pytest.raises(FrozenInstanceError):
        build(config).config = config  # type: ignore[misc]  # the test shows that this fails


async def test_process_with_another_publisher_shares_all_other_ports():
    process = build(config_of())
    evaluator, safeguards = await process.evaluator(), await process.safeguards()
    other = process.publishing_to(publisher := FakePublisher())

    assert other.published() is publisher
    assert process.published() is not publisher
    assert (await other.evaluator(), await other.safeguards()) == (evaluator, safeguards)
    assert other.engine is process.engine


async def test_publisher_of_the_timers_outlasts_every_delivery(monkeypatch, tmp_path):
    built: list[dict[str, float]] = []

    def build_publisher(*_, **options):
        built.append(options)
        return FakePublisher()

    monkeypatch.setattr(process_module, "build_publisher", build_publisher)
    settings = read_settings(environment={"K_SINK": "http://sink", "TTL_TIMERS": f"sqlite:{tmp_path}/timers.db"})
    process = build(read_config(settings, cluster=FakeCluster()))
    process.start_timers()
    await process.end()

    assert [options["seconds_max"] > max(DELIVERY_SECONDS.values()) for options in built] == [True]
