"""Check what the timer engines of TTL_TIMERS need: how many Pods, where the file is, which settings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared.adapters.config.settings import Settings
from shared.core.objects import get_in, get_text, list_mappings
from shared.doctor.findings import Finding, fail, ok
from shared.installation.inventory import Obj
from shared.installation.place import Place

WHAT = "timer engine"
_SCALE = "autoscaling.knative.dev"


@dataclass(frozen=True, slots=True)
class PodCount:
    """How many Pods of a workload may run, by its manifest.

    Attributes:
        least: The minimum.
        most: The maximum; None if there is none.
    """

    least: int
    most: int | None


def count_pods(workload: Obj) -> PodCount:
    """Read the number of Pods of a workload: its replicas, or the annotations of a Knative Service."""
    if get_text(workload, "apiVersion").startswith("serving.knative.dev/"):
        annotations = get_in(workload, "spec.template.metadata.annotations")
        given = annotations if isinstance(annotations, dict) else {}
        least, most = (str(given.get(f"{_SCALE}/{end}-scale", "")) for end in ("min", "max"))
        return PodCount(int(least) if least.isdecimal() else 0, int(most) or None if most.isdecimal() else None)
    replicas = get_in(workload, "spec.replicas")
    count = replicas if isinstance(replicas, int) else 1
    return PodCount(count, count)


def check_sleep(workloads: Sequence[Obj], place: Place) -> Iterator[Finding]:
    """Report a `timers` that may scale to zero: an engine that fires the timers itself has to run."""
    if any(count_pods(one).least == 0 for one in workloads):
        detail = f"timers may scale to zero, and then no timer fires: expected {_SCALE}/min-scale of at least 1"
        yield fail(WHAT, detail, place.apply(f"after you set {_SCALE}/min-scale of timers"))


def check_sqlite(workloads: Sequence[Obj], place: Place) -> Iterator[Finding]:
    """Check that at most one Pod may run, because each further Pod has another file."""
    problems = list(check_sleep(workloads, place))
    most = [count.most for count in map(count_pods, workloads) if count.most is None or count.most > 1]
    if most:
        number = "any number of" if most[0] is None else str(most[0])
        detail = (
            f"TTL_TIMERS is a file, and {number} Pods of timers may run: expected at most one, since each has a file "
            "of its own. A timer that is replaced or cancelled in one of them still fires from another"
        )
        note = f"after you set {_SCALE}/max-scale of timers to 1, or add components/timers-nats"
        problems.append(fail(WHAT, detail, place.apply(note)))
    yield from problems
    if not problems and workloads:
        yield ok(WHAT, f"sqlite, in {_describe_volumes(workloads)}")


def _describe_volumes(workloads: Sequence[Obj]) -> str:
    if any(get_in(one, "spec.volumeClaimTemplates") for one in workloads):
        return "a file on a claim"
    volumes = [volume for one in workloads for volume in list_mappings(one, "spec.template.spec.volumes")]
    if any("emptyDir" in volume for volume in volumes):
        return "an emptyDir: pending timers are lost with their Pod, and the next sweep sets them again"
    return "a file"


def check_cloud_tasks(settings: Settings, place: Place) -> Iterator[Finding]:
    """Check that Cloud Tasks has a URL to call, and an account to call it with."""
    needed = {"TTL_TASKS_TARGET": settings.tasks_target, "TTL_TASKS_ACCOUNT": settings.tasks_account}
    missing = [name for name, value in needed.items() if not value]
    for name in missing:
        detail = f"TTL_TIMERS is cloudtasks, which needs {name}: expected a value, got none"
        yield fail(WHAT, detail, place.apply(f"with {name} in the settings"))
    if not missing:
        yield ok(WHAT, f"{settings.timers}, which calls {settings.tasks_target} as {settings.tasks_account}")
