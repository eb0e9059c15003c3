"""Statuses as the controllers of kinds write them."""

from datetime import datetime

from shared.devserver.apiserver.resources import Object
from tests.simulation.things import Thing


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def finished_status(thing: Thing, at: datetime) -> Object:
    """That of an object that finished at an instant; some leave the time to the managed fields."""
    if thing.kind == "Pod":
        terminated = {"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": stamp(at)}}}
        status: Object = {"phase": "Failed" if thing.failed else "Succeeded"}
        return status if thing.moves else status | {"containerStatuses": [terminated]}
    condition = {"type": "Failed" if thing.failed else "Complete", "status": "True"}
    condition |= {} if thing.moves else {"lastTransitionTime": stamp(at)}
    suspended = {"type": "Suspended", "status": "False", "lastTransitionTime": stamp(at)}
    return {"conditions": [suspended, condition]}
