"""A policy, kinds beyond the three and guard rails on a real Knative, installed as knative/README.md says.

The operators of these kinds are not here: their CRDs are as small as can be, and the tests end the objects as those do.
Most of the time there is no PingSource, so what is deleted then is deleted by events; a tick is posted where a sweep is
wanted. The tests build on each other, in this order.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.config.kind_files import read_catalogue
from tests.builders import not_none
from tests.crds import crd_of
from tests.e2e import installation
from tests.e2e.cluster import DOMAIN, create, get, job, kubectl, wait
from tests.e2e.installation import edit, log_of, pods_of, ttl
from tests.e2e.rights import asked, audit_log, granted, refused
from tests.e2e.ticks import tick, wait_until_delivered
from tests.e2e.witness import Witness, by_annotation, finish_of

FLEET = Path(__file__).parent / "fleet"
ARCHIVE = installation.shared_folder("e2e-archive") if "KUBECONFIG" in os.environ else None
POLICY = (FLEET / "policy.yaml").read_text().replace("/var/lib/ttl-after-finished/archive", str(ARCHIVE))
BAKERY, STUDIO = "ttl-e2e-bakery", "ttl-e2e-studio"
"""The first has the label that the policy selects."""

KINDS = {"Bake": "e2e.example.com/v1", "Workflow": "argoproj.io/v1alpha1"}
JOINED = ("bakes.e2e.example.com", "workflows.argoproj.io")
PATHS = {
    "Bake": "/apis/e2e.example.com/v1/namespaces/{}/bakes",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Workflow": "/apis/argoproj.io/v1alpha1/namespaces/{}/workflows",
}
COMPLETED = "workflows.argoproj.io/completed"
HEARD_SECONDS = 6
"""Every process reads a release within five seconds."""

Object = dict[str, Any]
Witnesses = dict[str, Witness]


def stays(obj: Object) -> timedelta | None:
    """The expected TTL of each object of these tests: its own, otherwise that of the policies."""
    metadata, spec = obj["metadata"], obj.get("spec", {})
    own = spec.get("keepSeconds", spec.get("ttlStrategy", {}).get("secondsAfterCompletion"))
    if own is not None:
        return timedelta(seconds=own)
    if obj["kind"] == "Job":
        return timedelta() if "app" in metadata.get("labels", {}) else by_annotation(obj)
    if "copy" in spec:
        return timedelta(seconds=3)  # the grace counts from a time after the finish
    is_trial = spec.get("size", 100) < 10 and obj["status"]["phase"] == "Baked"
    return timedelta(seconds=3) if is_trial or metadata["namespace"] == BAKERY else None


# The cluster, and the installation


@pytest.fixture(scope="module")
def witnesses() -> Iterator[Witnesses]:
    """Record every deletion; at the end, check that none was early or unwanted."""
    known = read_catalogue(FLEET / "kinds")
    crds = [crd_of(next(rule for rule in known.rules if rule.name == name)) for name in JOINED]
    crds[-1]["spec"]["versions"][0].pop("subresources")  # as Argo's own
    for crd in crds:
        kubectl("apply", "-f", "-", given=json.dumps(crd))
    kubectl("wait", "--for=condition=Established", *(f"crd/{name}" for name in JOINED))
    for name in (BAKERY, STUDIO):
        kubectl("create", "namespace", name)
    kubectl("label", "namespace", BAKERY, "team=bakery")
    with ExitStack() as stack:
        yield {name: stack.enter_context(Witness(name, PATHS, stays).watching()) for name in (BAKERY, STUDIO)}
        seen = stack.pop_all()
    seen.close()


@pytest.fixture(scope="module")
def before(witnesses: Witnesses) -> list[Object]:
    """One object of each kind that finished before the source started."""
    assert witnesses
    things = [make(kind, "before", keep=1) for kind in KINDS]
    for thing in things:
        finish(thing)
    return things


@pytest.fixture(scope="module")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy with the folder of the archive, as `installed` mounts it."""
    return tmp_path_factory.mktemp("policy") / "policy.yaml"


@pytest.fixture(scope="module", autouse=True)
def installed(before: list[Object], policy_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """An overlay of a user's own; how many lines the audit log had before it. In the end it is uninstalled."""
    assert before
    log = audit_log()
    since = len(log.read_text().splitlines()) if log else 0
    installation.prepare()
    policy_file.write_text(POLICY)
    folder = installation.overlay(
        tmp_path_factory.mktemp("fleet"),
        components=["kinds", "policy", "guardrails"],
        settings={"TTL_KINDS": ",".join(("jobs", "pods", *JOINED))},
        files={"kinds": [FLEET / "kinds" / "bake.yaml"], "policy": [policy_file]},
    )
    installation.apply(folder)
    joining = ttl("kinds", "manifests", *JOINED, "--source", "apiserver", "--kinds-dir", str(FLEET / "kinds"))
    assert joining.returncode == 0, joining.stderr
    kubectl("apply", "-f", "-", given=joining.stdout)
    installation.wait_until_ready()
    wait_until_delivered()
    yield since
    installation.uninstall(folder)
    kubectl("delete", "--ignore-not-found", "-f", "-", given=joining.stdout)


@pytest.fixture(scope="module")
def unswept() -> Iterator[ExitStack]:
    """No PingSource from here on; to be closed where one is wanted again."""
    with ExitStack() as stack:
        stack.enter_context(installation.without_ticks())
        yield stack


# Objects, and what becomes of them


def make(kind: str, name: str, *, namespace: str = STUDIO, keep: int | None = None, **spec: Any) -> Object:
    """A Bake or a Workflow that works; `keep` is its kind's own TTL, in seconds."""
    if keep is not None:
        spec |= {"keepSeconds": keep} if kind == "Bake" else {"ttlStrategy": {"secondsAfterCompletion": keep}}
    thing = {"apiVersion": KINDS[kind], "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    return create(thing)


def finish(thing: Object, phase: str = "") -> None:
    """As its operator does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if thing["kind"] == "Bake":
        patch(thing, {"status": {"phase": phase or "Baked", "endedAt": now}})
    else:
        done = {"phase": phase or "Succeeded", "finishedAt": now}
        patch(thing, {"metadata": {"labels": {COMPLETED: "true"}}, "status": done})


def run_again(thing: Object) -> None:
    """As its operator does, and `argo retry`."""
    if thing["kind"] == "Bake":
        patch(thing, {"status": {"phase": "Baking", "endedAt": None}})
    else:
        patch(thing, {"metadata": {"labels": {COMPLETED: None}}, "status": {"phase": "Running", "finishedAt": None}})


def patch(thing: Object, change: Object) -> None:
    metadata = thing["metadata"]
    subresource = ["--subresource=status"] if thing["kind"] == "Bake" else []
    words = ("patch", thing["kind"], metadata["name"], "--type=merge", "-p", json.dumps(change))
    kubectl("-n", metadata["namespace"], *words, *subresource)


def goes(witnesses: Witnesses, thing: Object) -> None:
    metadata = thing["metadata"]
    what = f"the deletion of {thing['kind']} {metadata['name']}"
    wait(what, lambda: is_gone(witnesses, thing))


def is_gone(witnesses: Witnesses, thing: Object) -> bool:
    return witnesses[thing["metadata"]["namespace"]].gone(thing["metadata"]["uid"]) is not None


def fresh(thing: Object) -> Object | None:
    found: Object | None = get(thing["kind"], thing["metadata"]["name"], namespace=thing["metadata"]["namespace"])
    return found


def is_there(thing: Object) -> bool:
    return not_none(fresh(thing)) is not None


def passes(seconds: float) -> None:
    """Wait for a time in which something must not happen."""
    time.sleep(seconds)


def doctor() -> str:
    return ttl("doctor").stdout


def is_content(said: str) -> bool:
    """Return whether doctor reports no problem, except that it cannot look into a folder of the Pods."""
    problems = [line for line in said.splitlines() if line.startswith(("FAIL", "warn"))]
    return "checks" in said and all("archive main — cannot be checked" in line for line in problems)


def line_of(text: str, word: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if word in line)


def revisions() -> dict[str, str]:
    """The revision of each function that decides, of which Pods come and go."""
    names = ("schedule", "expire", "sweep")
    path = "jsonpath={.status.latestCreatedRevisionName}"
    return {name: kubectl("-n", installation.NAMESPACE, "get", "ksvc", name, "-o", path) for name in names}


def restarts() -> list[int]:
    """How often a container of a function that decides was started again."""
    pods = [name for function in ("schedule", "expire", "sweep") for name in pods_of(function).values()]
    found = [get("pod", name, namespace=installation.NAMESPACE) for name in pods]
    return [one["restartCount"] for pod in found if pod for one in pod["status"]["containerStatuses"]]


# Kinds beyond the three


def test_doctor_reports_no_problem_and_the_added_kinds() -> None:
    said: str = wait("doctor's content", lambda: is_content(out := doctor()) and out)
    for name in ("bakes", "workflows"):
        assert f"kind {name} — served" in said
    assert "newest-two-of-an-app, trials, team-bakery" in said


def test_object_finished_before_its_source_started_is_swept(witnesses: Witnesses, before: list[Object]) -> None:
    tick()
    for thing in before:
        goes(witnesses, thing)


@pytest.mark.usefixtures("unswept")
def test_objects_of_other_kinds_are_deleted_on_time(witnesses: Witnesses) -> None:
    things = [make(kind, "goes", keep=3) for kind in KINDS]
    for thing in things:
        finish(thing)
    for thing in things:
        goes(witnesses, thing)


@pytest.mark.usefixtures("unswept")
def test_object_that_runs_again_is_kept_until_it_finishes_again(witnesses: Witnesses) -> None:
    things = [make(kind, "again", keep=15) for kind in KINDS]
    for thing in things:
        finish(thing)
    passes(1)
    for thing in things:
        run_again(thing)
    passes(15)  # the timers of the first run fire
    assert all(is_there(thing) for thing in things)
    for thing in things:
        finish(thing)
    for thing in things:
        goes(witnesses, thing)


# The policy


@pytest.mark.usefixtures("unswept")
def test_policy_rule_matches_the_namespaces_of_its_selector(witnesses: Witnesses) -> None:
    theirs = [make(kind, "theirs", namespace=BAKERY) for kind in KINDS]
    others = [make(kind, "others") for kind in KINDS]
    for thing in (*theirs, *others):
        finish(thing)
    for thing in theirs:
        goes(witnesses, thing)
    assert all(is_there(thing) for thing in others)


@pytest.fixture(scope="module")
def larger() -> Object:
    """Too large for a trial, by the first policy."""
    thing = make("Bake", "larger", size=7)
    finish(thing)
    return thing


@pytest.mark.usefixtures("unswept")
def test_policy_rule_matches_where_its_expression_is_true(witnesses: Witnesses, larger: Object) -> None:
    trial, burnt = (make("Bake", name, size=1) for name in ("trial", "burnt"))
    finish(trial)
    finish(burnt, "Burnt")
    goes(witnesses, trial)
    assert is_there(larger)
    assert is_there(burnt)


@pytest.mark.usefixtures("unswept")
def test_policy_keeps_exactly_the_newest_of_each_app(witnesses: Witnesses) -> None:
    cake, older = batch("cake"), batch("bread")
    for thing in (*cake, *older):
        wait(f"the end of {thing['metadata']['name']}", lambda thing=thing: finish_of(not_none(fresh(thing))))
    newer = batch("bread")  # its script makes a Job end in a later second than those before
    for thing in older:
        goes(witnesses, thing)
    passes(3)
    assert all(is_there(thing) for thing in (*cake, *newer))


def batch(app: str) -> list[Object]:
    """Two Jobs of an app."""
    spec = job("", "sleep 1", namespace=STUDIO)
    spec["metadata"] |= {"generateName": f"{app}-", "labels": {"app": app}}
    return [create(spec) for _ in range(2)]


@pytest.mark.usefixtures("unswept")
def test_object_is_archived_before_it_is_deleted(witnesses: Witnesses, policy_file: Path) -> None:
    if ARCHIVE is None:
        pytest.skip("the Pods of this cluster share no folder")
    thing = make("Bake", "copied", copy=True)
    finish(thing)
    last = not_none(fresh(thing))  # the event of a deletion has the resourceVersion of the deletion
    goes(witnesses, thing)
    (copied,) = archived(thing, policy_file)
    deletion = not_none(witnesses[STUDIO].gone(thing["metadata"]["uid"]))
    assert copied["resourceVersion"] == last["metadata"]["resourceVersion"]
    assert deletion.seen_at >= datetime.fromisoformat(copied["archivedAt"]) + timedelta(seconds=3)


def archived(thing: Object, policy_file: Path) -> list[Object]:
    """The archived versions of an object."""
    source = ("--policy", str(policy_file), "--kinds-dir", str(FLEET / "kinds"))
    listed = ttl("archive", "ls", "-n", STUDIO, *source, "-o", "json")
    assert listed.returncode == 0, listed.stderr
    return [one for one in json.loads(listed.stdout) if one["uid"] == thing["metadata"]["uid"]]


def test_guardrails_refuse_an_unreadable_annotation() -> None:
    with pytest.raises(AssertionError, match=r'expected seconds .* got "soon"'):
        kubectl("-n", STUDIO, "annotate", "bake", "burnt", f"{DOMAIN}/ttl=soon")


@pytest.mark.usefixtures("unswept")
def test_bad_policy_is_reported_and_the_last_good_one_stays_in_force(witnesses: Witnesses) -> None:
    bad = POLICY.replace("ttl: {succeeded: 3s}", "ttl: {succeeded: soon}")
    place = f"policy.yaml:{line_of(bad, 'soon')}"
    edit("policy", "policy.yaml", bad)
    said = next(line for line in doctor().splitlines() if place in line)
    assert said.startswith("FAIL  policy")
    assert "running processes keep the last valid policy" in said
    thing = make("Bake", "under-a-bad-one", size=1)
    finish(thing)
    goes(witnesses, thing)
    assert place in log_of("expire")


@pytest.mark.usefixtures("unswept")
def test_corrected_policy_takes_effect_without_a_restart(witnesses: Witnesses, larger: Object) -> None:
    before = revisions()
    edit("policy", "policy.yaml", POLICY.replace("object.spec.size < 3", "object.spec.size < 10"))
    assert "ok    policy" in doctor()
    thing = make("Bake", "corrected", size=7)
    finish(thing)
    goes(witnesses, thing)
    assert is_there(larger)
    tick()
    goes(witnesses, larger)
    assert revisions() == before
    assert set(restarts()) <= {0}


# The breaker


MOST = 3


@pytest.fixture(scope="module")
def tripped(unswept: ExitStack, witnesses: Witnesses) -> list[Object]:
    """More than may go at once, and fewer than twice as many.

    An event that is delivered twice may ask the breaker again about an object that is gone, and must not trip it.
    """
    assert unswept
    edit("policy", "policy.yaml", POLICY.replace("count: 1000", f"count: {MOST}"))
    things = [make(kind, f"many-{number}", keep=2) for number in range(MOST) for kind in KINDS][:-1]
    for thing in things:
        finish(thing)
    wait("the deletion of some", lambda: sum(is_gone(witnesses, thing) for thing in things) == MOST)
    return things


def test_breaker_trips_at_its_count_and_then_nothing_is_deleted(witnesses: Witnesses, tripped: list[Object]) -> None:
    thing = make("Bake", "too-late", keep=0)
    finish(thing)
    tick()
    passes(3)
    assert sum(is_gone(witnesses, one) for one in tripped) == MOST
    assert is_there(thing)
    said = next(line for line in doctor().splitlines() if "breaker" in line)
    assert said.startswith("FAIL  breaker")
    assert f"the limit is {MOST}" in said
    witnesses[STUDIO].delete("bake", "too-late")


def test_released_breaker_lets_the_remaining_objects_be_deleted(witnesses: Witnesses, tripped: list[Object]) -> None:
    assert ttl("release", "--breaker").returncode == 0
    passes(HEARD_SECONDS)
    tick()
    for thing in tripped:
        goes(witnesses, thing)


# Rights, and the end


IDLE = {
    "source": {("get", name) for name in ("bakes", "workflows")},
    "expire": {("list", name) for name in ("bakes", "workflows")},
    "archive": {("list", "bakes"), ("get", "workflows"), ("list", "workflows")},
    "sweep": {("update", "configmaps"), ("get", "bakes"), ("get", "workflows")},
}
"""Rights that no test uses here, by account.

- `source`: an ApiServerSource never sends a GET.
- `expire`: objects of a group are listed only for a policy that counts them.
- `archive`: Bakes have no children, and no Workflow is archived.
- `sweep`: it updates the shared state only when a safeguard trips, and reads objects one by one only as children, or
  from a large page.
"""


def test_printed_rights_are_sufficient_and_all_used(installed: int) -> None:
    """Those on the kinds that joined, on the state, and on Jobs that are counted."""
    log = audit_log()
    if log is None:
        pytest.skip("needs the API server's audit log: see audit-policy.yaml")
    calls = asked(log, installation=installation.NAMESPACE, since=installed)
    assert refused(calls) == set()
    for account in ("schedule", "timers", "expire", "archive", "sweep", "source"):
        may = granted(account, installation=installation.NAMESPACE, namespace=installation.NAMESPACE)
        used = set(calls.get(account, {}))
        ours = {right for right in may if right[2] in {"bakes", "workflows", "configmaps"}}
        busy = {right for right in ours if (right[0], right[2]) not in IDLE.get(account, set())}
        assert busy <= used <= may, account
    assert ("list", "batch", "jobs") in calls["expire"]


def test_doctor_reports_no_problem_after_sweeps_resume(unswept: ExitStack) -> None:
    unswept.close()
    wait("doctor's content", lambda: is_content(doctor()))
