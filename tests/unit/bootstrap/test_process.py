"""A process that is built from a configuration: the ports that it makes once, and the Events that it writes."""

import asyncio
from dataclasses import FrozenInstanceError, replace

import pytest

from shared.adapters.config.settings import read_settings
from shared.adapters.timers.delivery import DELIVERY_SECONDS
from shared.bootstrap import process as process_module
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.bootstrap.process import Once
from shared.cli.input.target import name_served
from shared.errors import TryLaterError
from shared.messages import SweepStep
from tests.builders import ago, annotated, job
from tests.fakes import FakeClock, FakeCluster, FakePublisher

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


async def test_forged_last_steps_cause_no_events():
    config = config_of(TTL_NAMESPACE="home")
    process = build(config)
    for number in range(20):
        step = SweepStep(kinds=("no/Kind",), sweep_id=f"made up {number}", step=1, whole=True)
        await (await process.sweeper()).sweep(step)
        await (await process.sweeper()).sweep(step.model_copy(update={"passed_over": ("no/Kind",)}))

    assert config.cluster.events == []


async def test_sweep_of_several_steps_is_whole_although_each_step_has_its_own_use_case():
    config = config_of(TTL_NAMESPACE="home")
    clock = FakeClock()
    process = build(replace(config, clock=clock))
    config.cluster.on_list = lambda: clock.advance(21)
    step: SweepStep | None = SweepStep()
    while step is not None:
        step = await (await process.sweeper()).sweep(step)
    assert [reason for _, reason, _ in config.cluster.events] == ["Swept"]


@pytest.mark.parametrize("settings", [{}, {"TTL_NAMESPACE": "home", "TTL_DRY_RUN": "true"}])
async def test_sweep_writes_no_event_without_a_home_namespace_or_in_a_dry_run(settings):
    assert await swept(**settings) == []


INVALID = [
    annotated(job(complete=ago(60), name=f"job-{number}", uid=f"uid-{number}"), ttl="soon") for number in range(100)
]


@pytest.mark.parametrize("journal", ["true", "false"])
async def test_sweeps_of_many_invalid_objects_write_few_events(journal):
    config = config_of(TTL_JOURNAL=journal)
    for obj in INVALID:
        config.cluster.put(obj)
    process = build(config)
    for _ in range(3):
        await (await process.sweeper()).sweep(SweepStep())
    await process.end()

    assert config.cluster.events == []
    assert {one["reason"] for one in config.cluster.journaled} == {"InvalidTtl"}
    assert len(config.cluster.journaled) == 21


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


class ClosablePublisher(FakePublisher):
    """A publisher that can be closed."""

    is_closed = False

    async def close(self) -> None:
        self.is_closed = True


async def test_publisher_of_the_timers_outlasts_every_delivery_and_is_closed_after_the_engine(monkeypatch, tmp_path):
    built: list[dict[str, float]] = []
    publisher = ClosablePublisher()

    def build_publisher(*_, **options):
        built.append(options)
        return publisher

    monkeypatch.setattr(process_module, "build_publisher", build_publisher)
    settings = read_settings(environment={"K_SINK": "http://sink", "TTL_TIMERS": f"sqlite:{tmp_path}/timers.db"})
    process = build(read_config(settings, cluster=FakeCluster()))
    process.start_timers()
    assert not publisher.is_closed
    await process.end()

    assert publisher.is_closed
    assert [options["seconds_max"] > max(DELIVERY_SECONDS.values()) for options in built] == [True]


async def test_concurrent_callers_share_one_part():
    made = []

    async def make():
        await asyncio.sleep(0)
        made.append(object())
        return made[-1]

    part = Once(make)
    assert part.made is None
    parts = await asyncio.gather(part(), part())
    assert list(parts) == [part.made, part.made]
    assert len(made) == 1


async def test_part_that_could_not_be_made_is_tried_again():
    answers = [TryLaterError("busy"), "part"]

    async def make():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    part = Once(make)
    with pytest.raises(TryLaterError):
        await part()
    assert await part() == "part"
