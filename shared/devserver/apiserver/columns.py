"""The columns that `kubectl get` prints."""

from collections.abc import Callable
from datetime import datetime

from shared.devserver.apiserver.resources import JOBS, NAMESPACES, PODS, Object, Resource
from shared.devserver.apiserver.versions import parse_time

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_OLD = 120  # seconds; above this age only one unit is shown, as in the tables of kubectl

Cell = Callable[[Object, datetime], str | int]


def column_definitions(resource: Resource) -> list[Object]:
    """Return the columnDefinitions of a Table."""
    names = ["Name", *(name for name, _ in _EXTRA.get(resource.name, ())), "Age"]
    return [
        {"name": n, "type": "string", "format": "name" if n == "Name" else "", "description": n, "priority": 0}
        for n in names
    ]


def row_cells(resource: Resource, obj: Object, now: datetime) -> list[str | int]:
    """Return the cells of a row."""
    extra = [cell(obj, now) for _, cell in _EXTRA.get(resource.name, ())]
    return [obj["metadata"]["name"], *extra, _age(obj["metadata"]["creationTimestamp"], now)]


def _age(since: str, now: datetime) -> str:
    seconds = max(0, int((now - parse_time(since)).total_seconds()))
    if seconds < _OLD:
        return f"{seconds}s"
    unit, size = next((unit, size) for unit, size in _UNITS if seconds >= 2 * size)
    return f"{seconds // size}{unit}"


def _phase(obj: Object, _now: datetime) -> str:
    return str(obj.get("status", {}).get("phase", ""))


def _job_status(obj: Object, _now: datetime) -> str:
    conditions = obj.get("status", {}).get("conditions") or ()
    types = {c.get("type") for c in conditions if c.get("status") == "True"}
    known = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((name for name in known if name in types), "Running")


def _job_completions(obj: Object, _now: datetime) -> str:
    return f"{obj.get('status', {}).get('succeeded', 0)}/{obj.get('spec', {}).get('completions', 1)}"


def _job_duration(obj: Object, now: datetime) -> str:
    status = obj.get("status", {})
    if not status.get("startTime"):
        return ""
    return _age(status["startTime"], parse_time(status["completionTime"]) if status.get("completionTime") else now)


def _pod_ready(obj: Object, _now: datetime) -> str:
    statuses = obj.get("status", {}).get("containerStatuses") or ()
    return f"{sum(bool(s.get('ready')) for s in statuses)}/{len(obj.get('spec', {}).get('containers', ()))}"


def _secret_type(obj: Object, _now: datetime) -> str:
    return str(obj.get("type") or "Opaque")


def _keys(obj: Object, _now: datetime) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


_EXTRA: dict[str, tuple[tuple[str, Cell], ...]] = {
    JOBS.name: (("Status", _job_status), ("Completions", _job_completions), ("Duration", _job_duration)),
    PODS.name: (("Ready", _pod_ready), ("Status", _phase)),
    NAMESPACES.name: (("Status", _phase),),
    "configmaps": (("Data", _keys),),
    "secrets": (("Type", _secret_type), ("Data", _keys)),
}
