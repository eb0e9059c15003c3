"""Two versions in one installation on a real Knative: each function of the former one among new ones, and the reverse.

So it is during an upgrade, during a return to the former version, and if one of them stops half-way. The objects are
those of this version: docs/how-to/upgrade.md applies them first. What one version has stored, the other one reads:
marks of unused objects, timers in NATS, and archived documents.

E2E_FORMER_IMAGE names the image of the former version. The tests build on each other, in this order. No tick comes but
those that they post.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.core.usage.passes import GAP
from tests.e2e import installation, listener, nats_server
from tests.e2e.cluster import DOMAIN, SHELL, create, get, job, kubectl, wait
from tests.e2e.installation import broker_url, ttl
from tests.e2e.post import post
from tests.e2e.ticks import tick, wait_until_delivered
from tests.e2e.versions import FORMER_IMAGE, Images, image_of, needs_former_version, use
from tests.e2e.witness import Deletion, Witness, finish_of, stop_of, witnessed

NAMESPACE = "ttl-e2e-skew"
FUNCTIONS = ("schedule", "timers", "expire", "enforce", "sweep")
"""Those of the ways from the source and from a tick to the DELETE, and from the source to the stop."""

GONE_SECONDS = 60
SWEPT_TTL = "15s"
"""Longer than it takes to lose a timer and to sweep."""

Object = dict[str, Any]

pytestmark = needs_former_version


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    with witnessed(NAMESPACE) as seen:
        yield seen


@pytest.fixture(scope="module")
def installed(witness: Witness, short_windows: None) -> Iterator[Images]:
    """The two-minute start of this version; the images of its functions."""
    installation.prepare()
    installation.two_minute_start()
    wait_until_delivered()
    kubectl("-n", installation.NAMESPACE, "delete", "pingsources", "--all")
    yield {function: image_of(function) for function in FUNCTIONS}
    installation.run("kubectl delete -k knative/overlays/knative --ignore-not-found --timeout=180s")


@pytest.fixture(scope="module")
def former(installed: Images) -> Images:
    """The former image for each function."""
    return dict.fromkeys(installed, FORMER_IMAGE)


def make_job(name: str, script: str = "true", **words: str) -> Object:
    return create(job(name, script, namespace=NAMESPACE, **words))


def until_gone(witness: Witness, thing: Object) -> Deletion:
    name, uid = thing["metadata"]["name"], thing["metadata"]["uid"]
    deletion: Deletion = wait(f"the deletion of {name}", lambda: witness.gone(uid), GONE_SECONDS)
    return deletion


def until_finished(thing: Object) -> datetime:
    name = thing["metadata"]["name"]
    instant: datetime = wait(f"the end of {name}", lambda: finish_of(get("job", name, namespace=NAMESPACE)))
    return instant


def check(witness: Witness, name: str) -> None:
    """A finished Job is deleted after an event, and another one after a sweep; a third one is stopped."""
    reported = make_job(f"{name}-event", ttl="3s")
    late = make_job(f"{name}-stop", "sleep 600", active_deadline="3s", ttl="6s")
    wait(f"the stop of {name}-stop", lambda: stop_of(get("job", f"{name}-stop", namespace=NAMESPACE)), GONE_SECONDS)
    until_gone(witness, reported)
    until_gone(witness, late)

    swept = make_job(f"{name}-sweep", ttl=SWEPT_TTL)
    until_finished(swept)
    installation.kill("timers")  # its timers are in an emptyDir: only the sweep sets this one again
    installation.wait_until_ready()
    tick()
    until_gone(witness, swept)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_former_function_among_new_ones(witness: Witness, installed: Images, function: str) -> None:
    use({**installed, function: FORMER_IMAGE})
    check(witness, f"former-{function}")


def test_former_functions_on_the_objects_of_this_version(witness: Witness, former: Images) -> None:
    use(former)
    check(witness, "former")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_new_function_among_former_ones(witness: Witness, installed: Images, former: Images, function: str) -> None:
    use({**former, function: installed[function]})
    check(witness, f"new-{function}")


# What one version has stored


GRACE, NOTICE, UNUSED_TTL = timedelta(seconds=2), timedelta(seconds=4), timedelta(seconds=8)
"""Of an archived version; of an announcement, which is the interval of `usage`; of an unused object."""

TIMER_SECONDS = (20, 60)
"""Longer than it takes to replace the Pods of `timers`, and the same on a busy machine."""

AFTER_THE_TEST = timedelta(minutes=8)
"""Within the horizon of timers: the timer that `timers` sets instead of the object's own fires too late."""

STORED_SECONDS = 2
"""From the archived version to the stored timer of the deletion."""

ARCHIVE = "e2e-skew-archive"
POLICY = """
apiVersion: ttlafterfinished.dev/v1
kind: Policy
archives:
  main: {{url: "file://{archive}"}}
rules:
  - name: copied
    match: {{kinds: [jobs], namespaces: {{names: [{namespace}]}}, labels: {{matchLabels: {{copy: "true"}}}}}}
    archive: {{to: main, grace: {grace}s}}
  - name: rotated
    match: {{kinds: [configmaps], namespaces: {{names: [{namespace}]}}}}
    unused: {{ttl: {unused_ttl}s}}
"""


@pytest.fixture(scope="module")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = installation.shared_folder(ARCHIVE) or Path("/var/lib/ttl")
    words = {"archive": archive, "namespace": NAMESPACE, "grace": GRACE.seconds, "unused_ttl": UNUSED_TTL.seconds}
    file = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(POLICY.format(**words))
    return file


@pytest.fixture(scope="module")
def extended(installed: Images, policy_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """An overlay on the two-minute start: NATS, an archive, and unused objects; the images of its functions."""
    folder = installation.overlay(
        tmp_path_factory.mktemp("skew"),
        components=["timers-nats", "policy", "usage", "usage-all-kinds", "usage-guard"],
        settings={"TTL_NATS_REPLICAS": "1", "TTL_USAGE_INTERVAL": f"{NOTICE.seconds}s"},
        files={"policy": [policy_file]},
    )
    with nats_server.running():
        installation.apply(folder)
        kubectl("-n", installation.NAMESPACE, "delete", "pingsources", "--all")
        installation.wait_until_ready()
        listener.listen("dev.ttlafterfinished.timer.fired")
        yield {function: image_of(function) for function in (*installed, "archive", "usage")}
        installation.uninstall(folder)


@pytest.fixture(scope="module")
def extended_former(extended: Images) -> Images:
    """The former image for each function."""
    return dict.fromkeys(extended, FORMER_IMAGE)


# Marks of unused objects


def make_config_map(name: str) -> None:
    metadata = {"name": name, "namespace": NAMESPACE}
    create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"}})


def refer_to(config_map: str) -> None:
    """Use a ConfigMap in a template of Pods."""
    env = {"name": "SETTING", "valueFrom": {"configMapKeyRef": {"name": config_map, "key": "key"}}}
    container = {"name": "main", "image": SHELL, "env": [env]}
    template = {"metadata": {"labels": {"app": config_map}}, "spec": {"containers": [container]}}
    metadata = {"name": f"uses-{config_map}", "namespace": NAMESPACE}
    create({"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template})


def annotation_of(config_map: str, annotation: str) -> str:
    """Its text; empty without one or without the ConfigMap."""
    found = get("configmap", config_map, namespace=NAMESPACE) or {"metadata": {}}
    text: str = found["metadata"].get("annotations", {}).get(f"{DOMAIN}/{annotation}", "")
    return text


def mark_of(config_map: str) -> str:
    return annotation_of(config_map, "unused-since")


def is_announced(config_map: str) -> bool:
    return annotation_of(config_map, "deleted-after") != ""


def is_there(config_map: str) -> bool:
    return get("configmap", config_map, namespace=NAMESPACE) is not None


def passes_until(instant: datetime) -> None:
    time.sleep(max(0.0, (instant - datetime.now(UTC)).total_seconds()))


def tick_usage(what: str, true: Callable[[], bool]) -> None:
    """Post a tick of `usage`, and again only if it was lost: each tick may take the next step."""
    for _ in range(3):
        tick("usage")
        with suppress(AssertionError):
            wait(what, true, 10)
            return
    pytest.fail(f"{what} did not happen after three ticks")


def test_mark_and_announcement_of_one_version_count_for_the_other(extended: Images, extended_former: Images) -> None:
    """Each of two ConfigMaps is marked by one version, announced by the other, and deleted by the first."""
    new, former = ({"usage": images["usage"]} for images in (extended, extended_former))
    older, newer, newest, used = "settings-2b4c6d8f9g", "settings-4b6c8d2f9g", "settings-6b8c2d4f9g", "used-later"
    for name in (older, used):
        make_config_map(name)
    use(former)
    tick_usage("the marks by the former version", lambda: all(map(mark_of, (older, used))))
    mark_of_older = mark_of(older)

    refer_to(used)
    make_config_map(newer)
    time.sleep(GAP.total_seconds() + 1)
    make_config_map(newest)  # a newer generation in use: the only evidence that both versions leave alone
    refer_to(newest)
    use(new)
    passes_until(due_at(mark_of_older) - NOTICE)
    tick_usage("the mark and the announcement", lambda: mark_of(newer) != "" and is_announced(older))
    mark_of_newer, announced_at = mark_of(newer), datetime.now(UTC)
    assert mark_of(older) == mark_of_older
    wait("the withdrawal of a mark of the former version", lambda: not mark_of(used))

    use(former)
    passes_until(max(announced_at + NOTICE, due_at(mark_of_older), due_at(mark_of_newer) - NOTICE))
    tick_usage("the deletion and the announcement", lambda: not is_there(older) and is_announced(newer))
    assert mark_of(newer) == mark_of_newer

    use(new)
    passes_until(max(datetime.now(UTC) + NOTICE, due_at(mark_of_newer)))
    tick_usage("the deletion", lambda: not is_there(newer))
    assert is_there(used)


def due_at(mark: str) -> datetime:
    return datetime.fromisoformat(mark) + UNUSED_TTL


# Timers in NATS


def timer_of(uid: str, at: datetime, *, name: str = "absent") -> Object:
    ref = {"apiVersion": "batch/v1", "kind": "Job", "namespace": NAMESPACE, "name": name, "uid": uid}
    return {"ref": ref, "purpose": "expire", "dueAt": at.isoformat()}


def set_timers(name: str, *timers: Object) -> None:
    """Set timers as `schedule` does; the Broker accepts the event when they are stored."""
    type_ = "dev.ttlafterfinished.timer.set"
    headers = {"Ce-Id": name, "Ce-Source": "/e2e", "Ce-Specversion": "1.0", "Ce-Type": type_}
    body = json.dumps({"timers": timers})
    assert post(name, broker_url(), {**headers, "Content-Type": "application/json"}, body) == 202


def fired() -> dict[str, set[datetime]]:
    """When the timers that fired were due, by the uid of their objects."""
    found: dict[str, set[datetime]] = {}
    for line in listener.heard().splitlines():
        if "{" in line:
            timer, _ = json.JSONDecoder().raw_decode(line[line.index("{") :])
            found.setdefault(timer["ref"]["uid"], set()).add(datetime.fromisoformat(timer["dueAt"]))
    return found


def use_timers(image: str) -> None:
    """Run `timers` in one version, and wait for the end of its Pods before."""
    if image_of("timers") != image:
        before = uids_of_timers()
        use({"timers": image})
        wait("the end of the Pods before", lambda: not before & uids_of_timers())


def uids_of_timers() -> set[str]:
    pods = ("get", "pods", "-l", "serving.knative.dev/service=timers", "-o", "jsonpath={.items[*].metadata.uid}")
    return set(kubectl("-n", installation.NAMESPACE, *pods).split())


@pytest.mark.parametrize("first", ["former", "new"])
def test_timers_of_one_version_fire_from_the_other(
    witness: Witness, extended: Images, extended_former: Images, first: str
) -> None:
    """One that stays, and two that the other version sets for another time; and the timer of a Job."""
    images = (extended_former, extended) if first == "former" else (extended, extended_former)
    before, after = (image["timers"] for image in images)
    for seconds in TIMER_SECONDS:
        use_timers(before)
        name = f"{first}-{seconds}"
        finished = make_job(f"timer-{name}", ttl=f"{seconds}s")
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
        earlier, later = at - timedelta(seconds=2), at + timedelta(seconds=2)
        stays, hastened, delayed = uids = [f"{name}-{number}" for number in range(3)]
        set_timers(f"set-{name}", *(timer_of(uid, at) for uid in uids))
        until_finished(finished)

        use_timers(after)
        set_timers(f"change-{name}", timer_of(hastened, earlier), timer_of(delayed, later))
        if datetime.now(UTC) < earlier:
            break
    else:
        pytest.fail(f"the Pods of timers were not replaced within {TIMER_SECONDS[-1]} s")
    newest = {stays: at, hastened: earlier, delayed: later}
    seconds = TIMER_SECONDS[-1] + 20
    wait("the newest timers", lambda: all(at in fired().get(uid, ()) for uid, at in newest.items()), seconds)
    until_gone(witness, finished)
    seen = {uid: instants for uid, instants in fired().items() if uid in uids}
    assert {uid for uid, instants in seen.items() if not instants <= {at, newest[uid]}} == set()


# Archive before delete


@pytest.mark.parametrize("others", ["former", "new"])
def test_archive_of_one_version_serves_functions_of_the_other(
    witness: Witness, extended: Images, extended_former: Images, policy_file: Path, others: str
) -> None:
    """After an event, and by a sweep after its timer is lost, a Job is deleted once the archive has this version.

    The versions may store under different keys: then the Jobs wait until all functions are of one version.
    """
    folder = installation.shared_folder(ARCHIVE)
    if folder is None:
        pytest.skip("the Pods of this cluster share no folder")
    images, archiver = (extended_former, extended) if others == "former" else (extended, extended_former)
    use({**images, "archive": archiver["archive"]})
    # Long enough for a busy machine: the first one is read after it has finished, and the second one's timer is lost.
    ttls = {"event": timedelta(seconds=6), "sweep": timedelta(seconds=40)}
    reported, swept = (archived_job(f"{others}-{name}", after) for name, after in ttls.items())
    versions = {version_at_finish(thing) for thing in (reported, swept)}
    due = until_finished(swept) + ttls["sweep"]
    uid, name = swept["metadata"]["uid"], swept["metadata"]["name"]
    for thing in (reported, swept):
        wait(f"a file of {thing['metadata']['name']}", lambda of=thing: any(folder.rglob(f"{of['metadata']['uid']}.*")))
    time.sleep(STORED_SECONDS)
    set_timers(f"lose-{others}", timer_of(uid, due + AFTER_THE_TEST, name=name))
    passes_until(due + timedelta(seconds=2))
    assert witness.gone(uid) is None
    tick()
    use(extended)
    tick()
    deletions = [until_gone(witness, thing) for thing in (reported, swept)]

    copies = archived(policy_file)
    for deletion in deletions:
        own = [copy for copy in copies if copy["uid"] == deletion.obj["metadata"]["uid"]]
        (copy,) = (copy for copy in own if copy["resourceVersion"] in versions)
        assert deletion.seen_at >= datetime.fromisoformat(copy["archivedAt"]) + GRACE
    verified = ttl("archive", "verify", "-A", "--policy", str(policy_file))
    assert verified.returncode == 0, verified.stdout + verified.stderr


def archived_job(name: str, ttl_after: timedelta) -> Object:
    spec = job(name, "true", namespace=NAMESPACE, ttl=f"{ttl_after.seconds}s")
    spec["metadata"]["labels"] = {"copy": "true"}
    return create(spec)


def version_at_finish(thing: Object) -> str:
    until_finished(thing)
    version: str = get("job", thing["metadata"]["name"], namespace=NAMESPACE)["metadata"]["resourceVersion"]
    return version


def archived(policy_file: Path) -> list[Object]:
    """The archived versions of all Jobs."""
    listed = ttl("archive", "ls", "jobs", "-n", NAMESPACE, "--policy", str(policy_file), "-o", "json")
    assert listed.returncode == 0, listed.stderr
    found: list[Object] = json.loads(listed.stdout)
    return found
