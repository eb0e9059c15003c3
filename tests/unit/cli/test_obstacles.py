"""Obstacles: what prevents the deletion of a due object; an object that is kept has none."""

from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from shared.adapters.config.policy_file import parse_policy
from shared.cli.deleters.in_force import InForce, NamespaceState, PolicyInForce
from shared.cli.deleters.obstacles import ObstacleReason, find_obstacles, find_stale_guard
from shared.cli.explanation.explanation_text import as_text
from shared.cli.objects.object_report import ExplainContext
from shared.cli.objects.preview import ObjectPreview
from shared.cli.objects.related import find_related
from shared.core.decision.decide import Context, decide
from shared.core.decision.namespaces import plain_namespace
from shared.core.kinds.rule import Catalogue
from shared.core.policy.policy import NO_POLICY
from shared.core.values.objects import format_instant, ref_of
from shared.core.values.scope import Scope
from shared.errors import TtlError
from shared.installation.guard_status import GuardState
from shared.installation.installed import Installed
from shared.installation.leader import LEASE_AGE_MAX, Leader
from shared.safeguards.denials import name_of
from shared.safeguards.state_schema import StateContents, Trip
from tests.builders import JOB, NOW, POD, ago, job, later

KINDS = Catalogue((JOB, POD))
FILE = """apiVersion: ttlafterfinished.dev/v1
kind: Policy
rules: [{name: NAME, match: {kinds: [jobs]}, ttl: 1h}]
"""
RULES = parse_policy(FILE, KINDS, name="policy.yaml")
CLOSED = StateContents()
DUE = job(complete=ago(60), ttl_succeeded="1s")
WAITS = job(complete=ago(60), ttl_succeeded="1h")
NATIVE = job(complete=ago(60), ttl=1)
NAME = name_of(ref_of(DUE))
OPEN = StateContents(Trip(ago(90), "too many", "sweep"))
INSTALLED = Installed("home", KINDS, RULES, "ConfigMap home/policy", enabled=frozenset({"jobs.batch", "pods"}))


def leader(seconds=3.0, holder="laptop/7", scope=None):
    return Leader("default", holder, ago(seconds), NOW, scope)


def scope(namespace="", kinds=(), policy="", *, dry_run=False):
    return Scope(namespace, kinds, policy, dry_run=dry_run, version="1")


def of(installed=INSTALLED, home=CLOSED, run=CLOSED, led=None, problem="", unread="", flags=()):
    homes = (NamespaceState("home", home, problem=unread), NamespaceState("default", run, led))
    return InForce("home", KINDS, installed, problem, homes, flags)


def obstacles(found, obj=DUE):
    decision = decide(obj, JOB, NOW, Context(namespace=plain_namespace("ci")))
    return list(find_obstacles(found, ref_of(obj), JOB, decision=decision, now=NOW))


def reasons(found, obj=DUE):
    return [one.reason for one in obstacles(found, obj)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (of(), []),
        (of(home=OPEN), ["breaker-open"]),
        (of(home=StateContents(loops={NAME: later(60)})), ["recreate-loop"]),
        (of(home=StateContents(loops={NAME: ago(1)})), []),
        (of(home=StateContents(loops={"Job.batch/ci/another": later(60)})), []),
        (of(run=OPEN), []),  # of a `run` that has ended
        (of(run=OPEN, led=leader()), ["breaker-open"]),
        (of(installed=None), ["no-active-deleter"]),
        (of(installed=None, run=OPEN), ["no-active-deleter", "breaker-open"]),
        (of(installed=None, led=leader()), []),
        (of(installed=None, led=leader(holder="")), ["no-active-deleter"]),
        (of(installed=None, led=leader(LEASE_AGE_MAX.total_seconds() + 1)), ["no-active-deleter"]),
        (of(installed=None, problem="forbidden"), []),
        (of(installed=None, unread="forbidden"), ["stop-unread"]),
    ],
)
def test_obstacles_are_found(found, expected):
    assert reasons(found) == expected


@pytest.mark.parametrize(("run", "state", "shown"), [(OPEN, CLOSED, []), (CLOSED, OPEN, ["breaker-open"])])
def test_state_of_a_leader_is_read_in_the_namespace_on_its_lease(run, state, shown):
    led = leader(scope=replace(scope(), state="ops"))
    homes = (NamespaceState("home", CLOSED), NamespaceState("default", run, led), NamespaceState("ops", state, led))
    assert reasons(InForce("home", KINDS, None, "", homes)) == shown


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (of(replace(INSTALLED, enabled=frozenset({"pods"}))), (POD,)),
        (of(replace(INSTALLED, enabled=frozenset())), ()),
        (of(replace(INSTALLED, enabled=None)), None),
        (of(installed=None), None),
        (of(led=leader()), None),
        (of(led=leader(holder="")), (JOB, POD)),
    ],
)
def test_enabled_kinds_are_those_of_the_installation_unless_a_run_leads(found, expected):
    assert (found.enabled and found.enabled.rules) == expected


def test_kept_object_has_no_obstacles():
    held = job(complete=ago(60), ttl_succeeded="1s", hold="why")
    assert reasons(of(installed=None, home=OPEN), held) == []


def test_object_that_is_due_later_has_obstacles_now():
    assert reasons(of(home=OPEN), WAITS) == ["breaker-open"]


def test_object_that_its_own_controller_deletes_needs_no_deleter():
    assert reasons(of(installed=None), NATIVE) == []


def test_disabled_kind_and_dry_run_are_obstacles():
    idle = Installed("home", KINDS, RULES, enabled=frozenset({"pods"}), kinds_named=("pods",), dry_run=True)
    first, second = obstacles(of(installed=idle))
    assert (first.reason, second.reason) == ("kind-not-enabled", "dry-run")
    assert first.message == "the installation in namespace home does not handle jobs.batch: TTL_KINDS is pods"
    assert reasons(of(installed=idle, led=leader())) == []  # a `run` may delete it
    own = InForce("home", KINDS, idle, "", (NamespaceState("home", CLOSED, leader()),))
    assert reasons(own) == ["kind-not-enabled", "dry-run"]  # its Lease is of no `run`
    assert reasons(of(installed=Installed("home", KINDS, RULES))) == []  # its settings cannot be read


ALONE = Installed("home", KINDS, RULES, is_alone=True)


@pytest.mark.parametrize(
    ("led", "run", "shown"),
    [
        (None, None, ["no-active-deleter"]),
        (leader(holder=""), None, ["no-active-deleter"]),
        (leader(LEASE_AGE_MAX.total_seconds() + 1), None, ["no-active-deleter"]),
        (leader(), None, []),
        (None, leader(), []),  # a `run` deletes it
    ],
)
def test_standalone_installation_without_a_leader_is_an_obstacle(led, run, shown):
    found = InForce(
        "home", KINDS, ALONE, "", (NamespaceState("home", CLOSED, led), NamespaceState("default", CLOSED, run))
    )
    assert reasons(found) == shown


def test_unreadable_lease_is_not_reported_as_missing():
    found = InForce(
        "home",
        KINDS,
        ALONE,
        "",
        (NamespaceState("home", CLOSED, problem="forbidden"), NamespaceState("default", CLOSED)),
    )
    assert reasons(found) == ["stop-unread"]


def test_end_of_a_loop_is_shown_in_whole_seconds():
    until = later(60) + timedelta(microseconds=7)
    (one,) = obstacles(of(home=StateContents(loops={NAME: until})))
    assert f"until {format_instant(later(60))}, " in one.message


def test_release_command_names_the_same_cluster():
    (one,) = obstacles(of(home=OPEN, flags=("--context=prod",)))
    assert "`kubectl ttl release --breaker -n home --context=prod`" in one.cure
    assert one.message.startswith("the breaker in namespace home is open for 1m30s; nothing is deleted since ")
    assert (one.since, one.until) == (ago(90), None)


def test_decision_comes_first_then_obstacle_and_fix():
    decision = decide(DUE, JOB, NOW, Context(namespace=plain_namespace("ci")))
    scene = ExplainContext(PolicyInForce(RULES, "ConfigMap home/policy"), tuple(obstacles(of(home=OPEN))))
    lines = as_text(ObjectPreview(ref_of(DUE), decision, NOW), scene).splitlines()
    assert lines[1].startswith("  decision  due (expired): expired 59s ago")
    assert lines[2].startswith("  but       the breaker in namespace home is open")
    assert lines[3].startswith(
        "  do        check which objects are due (`kubectl ttl plan`), then `kubectl ttl release --breaker"
    )
    assert "  policy    ConfigMap home/policy" in lines


# Which policy applies


def test_installed_policy_applies_unless_none_is_asked_for():
    assert str(of().choose(None)) == "ConfigMap home/policy"
    none = of().choose(Path("none"))
    assert (none.policy, none.is_known, none.message) == (NO_POLICY, True, "none: set by the operator")


@pytest.mark.parametrize(
    ("found", "is_known", "shown"),
    [
        (of(installed=None), True, "none: nothing is installed in namespace home"),
        (of(installed=Installed("home", KINDS, NO_POLICY)), True, "none: the installation in namespace home has no"),
        (
            of(installed=None, led=leader()),
            False,
            "unknown: nothing is installed in namespace home, and the Lease of `run` laptop/7 does",
        ),
        (
            of(installed=None, problem="forbidden"),
            False,
            "unknown: the installed policy could not be read: forbidden",
        ),
        (
            of(Installed("home", KINDS, NO_POLICY, problem="bad")),
            False,
            "unknown: the installed policy could not be read",
        ),
    ],
)
def test_missing_policy_has_a_reason(found, is_known, shown):
    named = found.choose(None)
    assert (named.policy, named.is_known) == (NO_POLICY, is_known)
    assert named.message.startswith(shown)


@pytest.mark.parametrize("found", [of(installed=None), of(installed=None, problem="forbidden")])
def test_installed_policy_is_an_error_if_there_is_none(found):
    assert str(of().choose(Path("cluster"))) == "ConfigMap home/policy"
    with pytest.raises(TtlError, match=r"nothing is installed in namespace home|forbidden"):
        found.choose(Path("cluster"))


def test_named_policy_file_takes_precedence(tmp_path, monkeypatch):
    for name in ("asked", "usual"):
        (tmp_path / name).write_text(FILE.replace("NAME", name))
    monkeypatch.setenv("TTL_POLICY", str(tmp_path / "usual"))
    assert of().choose(tmp_path / "asked").policy.rules[0].name == "asked"
    assert of().choose(None).policy.rules[0].name == "usual"
    assert of().choose(Path("none")).policy is NO_POLICY
    assert str(of().choose(Path("cluster"))) == "ConfigMap home/policy"


def test_control_characters_of_a_name_are_replaced():
    obj = job(name="\x1b[2Jx", complete=ago(60))

    shown = as_text(ObjectPreview(ref_of(obj), decide(obj, JOB, NOW), NOW))

    assert shown.splitlines()[0] == "Job ci/\N{REPLACEMENT CHARACTER}[2Jx"


@pytest.mark.parametrize(
    ("handles", "reason"),
    [
        (scope(), []),
        (scope("ci", ("jobs.batch",)), []),
        (scope("prod"), ["namespace-not-enabled"]),
        (scope(kinds=("pods",)), ["kind-not-enabled"]),
        (scope(dry_run=True), ["dry-run"]),
    ],
)
def test_leader_that_does_not_handle_an_object_is_an_obstacle(handles, reason):
    assert reasons(of(installed=None, led=leader(scope=handles))) == reason
    assert reasons(of(led=leader(scope=handles))) == []  # the installation deletes it


def test_leader_of_one_namespace_is_named_with_its_namespace():
    (found,) = obstacles(of(installed=None, led=leader(scope=scope("prod"))))
    assert found.message == "the leading `run` laptop/7 handles only namespace prod"


def test_scope_of_a_former_leader_is_no_obstacle():
    gone = leader(holder="", scope=scope("prod"))
    assert reasons(of(installed=None, led=gone)) == ["no-active-deleter"]


def test_policy_of_a_leader_is_compared_with_the_applied_one(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(FILE)
    ours = sha256(FILE.encode()).hexdigest()[:12]
    same = of(installed=None, led=leader(scope=scope(policy=ours)))
    other = of(installed=None, led=leader(scope=scope(policy="0123456789ab")))
    none = of(installed=None, led=leader(scope=scope()))

    assert same.choose(path).differs == ""
    assert "leads with policy sha256:0123456789ab" in other.choose(path).message
    assert f"sha256:{ours}" in other.choose(path).differs
    assert "leads with no policy" in none.choose(path).differs
    assert (none.choose(None).is_known, none.choose(None).differs) == (True, "")
    unknown = other.choose(None)
    assert (unknown.is_known, unknown.differs) == (False, "")
    assert "policy sha256:0123456789ab" in unknown.message
    assert "leads with policy sha256:0123456789ab" in other.choose(Path("none")).differs
    assert "leads with policy" in of(led=leader(scope=scope(policy="0123456789ab"))).choose(None).differs


@pytest.mark.parametrize("guard", list(GuardState))
def test_stale_delete_guard_is_an_obstacle_of_a_due_object(guard):
    due, held = (decide(one, JOB, NOW, Context(namespace=plain_namespace("ci"))) for one in (DUE, job(hold="why")))
    shown = list(find_stale_guard(of(), JOB, due, guard=guard))
    assert [one.reason for one in shown] == (
        [ObstacleReason.STALE_GUARD] if guard in (GuardState.STALE, GuardState.ALTERED) else []
    )
    assert all("kinds manifests jobs.batch --only=guard --namespace=home" in one.cure for one in shown)
    assert list(find_stale_guard(of(), JOB, held, guard=guard)) == []
    assert list(find_stale_guard(of(), JOB, due, guard=None)) == []


@pytest.mark.parametrize(
    ("obj", "is_refused"),
    [(job(hold="why", complete=ago(60)), True), (job(ttl_succeeded="1h"), True), (DUE, False), (WAITS, False)],
)
def test_explain_names_the_delete_guard_that_denies_the_delete(obj, is_refused):
    decision = decide(obj, JOB, NOW, Context(namespace=plain_namespace("ci")))
    for guard in (GuardState.CURRENT, GuardState.STALE, None):
        related = find_related(obj, JOB, decision.facts, owner=None, namespace=None)
        text = as_text(
            ObjectPreview(ref_of(obj), decision, NOW, related), ExplainContext(PolicyInForce(RULES), guard=guard)
        )
        shown = [line for line in text.splitlines() if line.startswith("  guard ")]
        expected = is_refused and guard is GuardState.CURRENT
        assert [line.split()[-1] for line in shown] == ["ttl-after-finished-delete-guard-job"] * expected
