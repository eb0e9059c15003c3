"""Build the process of a configuration: which part gets which other parts."""

import functools
import time

from shared.bootstrap.archives import OpenedArchives
from shared.bootstrap.config import ProcessConfig
from shared.bootstrap.installation_events import InstallationEvents
from shared.bootstrap.once import Once
from shared.bootstrap.process import Process
from shared.bootstrap.timer_engine import TimerEngine
from shared.core.timing import sweep_ahead
from shared.evaluation.children import Children
from shared.evaluation.evaluator import Evaluator
from shared.ports import Cluster
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime


def build(config: ProcessConfig) -> Process:
    """Build the process of a configuration; it connects and starts nothing."""
    settings = config.settings

    async def build_cluster() -> Cluster:
        from shared.adapters.kubernetes.access import get_access  # noqa: PLC0415 - only some functions need it
        from shared.adapters.kubernetes.connect import connect  # noqa: PLC0415 - only some functions need it

        return await connect(access=get_access(settings))

    async def build_evaluator() -> Evaluator:
        return Evaluator(
            await cluster(),
            config.kinds,
            config.policy,
            telemetry=config.telemetry,
            only=config.namespace,
            archives=archives,
        )

    async def build_children() -> Children:
        return Children(await cluster(), config.kinds)

    async def build_safeguards() -> Safeguards:
        from shared.adapters.kubernetes import state_configmap as state  # noqa: PLC0415 - loads the HTTP client

        write_event = functools.partial(events.write_in, config.home_namespace)
        return state.build_safeguards(
            state.StateLocation(await cluster(), config.home_namespace, write_event),
            lambda: config.policy().limits,
            Runtime(config.clock, time.monotonic, config.telemetry),
            namespace=config.namespace,
            horizon=sweep_ahead(settings.sweep_interval),
        )

    cluster = Once(build_cluster, config.cluster)
    archives = config.archives or OpenedArchives(settings.cluster_name)
    events = InstallationEvents(settings, cluster)
    return Process(
        config=config,
        cluster=cluster,
        evaluator=Once(build_evaluator),
        safeguards=Once(build_safeguards),
        engine=TimerEngine(settings, config.clock, config.timers),
        events=events,
        archives=archives,
        children=Once(build_children),
    )
