"""Build the safeguards of a process: its limits and its counts, and the state that it shares with other processes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from shared.adapters.kubernetes.discovery import count_objects
from shared.adapters.kubernetes.requests import ApiServer
from shared.adapters.kubernetes.state_configmap import ConfigMapState
from shared.core.kinds.rule import KindRule
from shared.core.policy.limits import Limits
from shared.errors import PermanentError
from shared.ports import WriteEvent
from shared.safeguards.safeguards import Safeguards
from shared.safeguards.shared_state import Runtime, SharedState


@dataclass(frozen=True, slots=True)
class StateLocation:
    """Where an installation keeps its shared state.

    Attributes:
        cluster: The cluster; only an `ApiServer` can keep state.
        namespace: The namespace of the installation; empty for no shared state, so that each process counts alone.
        write_event: Writes a Kubernetes Event about the installation.
    """

    cluster: object
    namespace: str
    write_event: WriteEvent


def build_safeguards(
    location: StateLocation, limits: Callable[[], Limits], runtime: Runtime, *, namespace: str, horizon: timedelta
) -> Safeguards:
    """Build the safeguards of one process, which delay or deny DELETEs of due objects.

    Args:
        location: Where the shared state is.
        limits: Returns the limits in force.
        runtime: Clocks and telemetry.
        namespace: The only namespace that the process works in; empty for all.
        horizon: See `Safeguards`.
    """
    server = location.cluster if isinstance(location.cluster, ApiServer) else None

    async def count(rule: KindRule) -> int:
        if server is None:
            raise PermanentError(f"cannot count {rule.plural}: this process has no API server")
        return await count_objects(server, rule, namespace)

    state = ConfigMapState(server, location.namespace) if server and location.namespace else None
    shared_state = SharedState(state, runtime, write_event=location.write_event, namespace=location.namespace)
    return Safeguards(limits, shared_state, runtime, count_objects=count, horizon=horizon)
