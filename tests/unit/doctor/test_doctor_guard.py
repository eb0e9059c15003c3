"""The check of the delete guard: the guard of a cluster is compared with the guard of this version."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest

from shared.core.kinds.rule import Catalogue
from shared.doctor.delete_guard import check_guard
from shared.doctor.findings import Level
from shared.doctor.rights import Account
from shared.errors import ForbiddenError
from shared.installation.guard_status import GuardState, compare_guard
from shared.installation.guards import guard, not_checked, stop_guard
from shared.installation.place import Place
from tests.builders import JOB, POD, having, kind_rule, without

NAMESPACE = "ttl-after-finished"
PLACE = Place(NAMESPACE, manifests="knative")
POLICY, BINDING = guard([JOB], NAMESPACE)
STOPS = stop_guard([JOB], NAMESPACE)
EXPIRE = Account("expire", "expire", frozenset())
OTHER_RULE = JOB.model_copy(update={"finished": POD.finished})


class Answer:
    def __init__(self, body):
        self.body = body


class Server:
    """Answers the requests of the check."""

    def __init__(self, policies=(), bindings=(), served=True, error=None):
        plurals = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
        self.lists = dict(zip(plurals, (policies, bindings), strict=True))
        self.served, self.error = served, error

    async def request(self, _method, path, **_options):
        plural = urlsplit(path).path.rpartition("/")[2]
        if plural == "v1":
            return Answer({"resources": [{"name": name} for name in (self.lists if self.served else ())]})
        if self.error:
            raise self.error
        return Answer({"items": list(self.lists[plural])})


def check(server, rules=(JOB,), accounts=(EXPIRE,), place=PLACE):
    return asyncio.run(check_guard(server, rules, known=Catalogue(tuple(rules)), accounts=accounts, place=place))


@pytest.mark.parametrize(
    ("policy", "binding", "state"),
    [
        (POLICY, BINDING, GuardState.CURRENT),
        (guard([JOB], NAMESPACE, ["robot"])[0], BINDING, GuardState.CURRENT),
        (None, BINDING, GuardState.MISSING),
        (POLICY, None, GuardState.MISSING),
        (guard([OTHER_RULE], NAMESPACE)[0], BINDING, GuardState.STALE),
        (without(POLICY, "metadata.annotations"), BINDING, GuardState.STALE),
        (guard([JOB], "elsewhere")[0], BINDING, GuardState.OTHERS),
        (without(POLICY, "spec.matchConditions"), BINDING, GuardState.ALTERED),
        (having(POLICY, "spec.failurePolicy", "Ignore"), BINDING, GuardState.ALTERED),
        (having(POLICY, "spec.validations", POLICY["spec"]["validations"][:1]), BINDING, GuardState.ALTERED),
        (
            having(POLICY, "spec.matchConstraints.namespaceSelector", {"matchLabels": {"a": "b"}}),
            BINDING,
            GuardState.ALTERED,
        ),
        (POLICY, having(BINDING, "spec.validationActions", ["Warn"]), GuardState.ALTERED),
        (POLICY, having(BINDING, "spec.matchResources", {"namespaceSelector": {}}), GuardState.ALTERED),
    ],
)
def test_guard_is_current_only_if_this_version_generates_the_same(policy, binding, state):
    assert compare_guard([JOB], NAMESPACE, policy, binding) is state


def test_current_guards_report_their_unchecked_conditions():
    findings = check(Server([POLICY, STOPS[0]], [BINDING, STOPS[1]]))
    assert [(one.level, one.what) for one in findings] == [(Level.OK, "delete guard"), (Level.OK, "stop guard")]
    for finding in findings:
        assert finding.detail.startswith("jobs.batch; not checked by the API server: ")
        assert "clock" in finding.detail


@pytest.mark.parametrize(
    ("stops", "what"),
    [
        (([], []), "stop guard missing"),
        (([stop_guard([OTHER_RULE], NAMESPACE)[0]], [STOPS[1]]), "stop guard stale"),
        (([stop_guard([JOB], "elsewhere")[0]], [STOPS[1]]), "stop guard of others"),
        (([having(STOPS[0], "spec.failurePolicy", "Ignore")], [STOPS[1]]), "stop guard altered"),
    ],
)
def test_stop_guard_problem_names_the_command_that_fixes_it(stops, what):
    policies, bindings = stops
    _, finding = check(Server([POLICY, *policies], [BINDING, *bindings]))
    assert (finding.level, finding.what) == (Level.WARN, what)
    assert "manifests jobs.batch --only=guard" in finding.fix


def test_kind_that_cannot_be_stopped_needs_no_stop_guard():
    unstoppable = POD.model_copy(update={"deadline": None})
    (finding,) = check(Server(*([one] for one in guard([unstoppable], NAMESPACE))), rules=(unstoppable,))
    assert finding.what == "delete guard"


def test_guard_problem_names_its_kinds_and_the_command_that_fixes_it():
    workflow = kind_rule("workflows.argoproj.io")
    place = Place(NAMESPACE, manifests="knative", mounted_kinds=frozenset({"workflows.argoproj.io"}))
    stale = guard([OTHER_RULE], NAMESPACE)
    server = Server([stale[0], STOPS[0]], [stale[1], STOPS[1]])
    rules = (JOB, *(rule.model_copy(update={"deadline": None}) for rule in (POD, workflow)))
    findings = {one.what: one for one in check(server, rules, place=place) if one.level is not Level.OK}
    assert findings.keys() == {"delete guard missing", "delete guard stale"}
    assert "pods, workflows.argoproj.io" in findings["delete guard missing"].detail
    assert findings["delete guard missing"].fix == (
        "kubectl ttl kinds manifests pods workflows.argoproj.io --only=guard --namespace=ttl-after-finished "
        "--kinds-dir=YOUR_RULES | kubectl apply -f -"
    )
    assert "manifests jobs.batch --only=guard" in findings["delete guard stale"].fix


def test_rules_of_one_kind_make_one_guard():
    names = ("mpijobs-v1.kubeflow.org", "mpijobs-v2beta1.kubeflow.org")
    rules = [kind_rule(name).model_copy(update={"deadline": None}) for name in names]
    policy, binding = guard(rules, NAMESPACE)
    server: Any = Server([policy], [binding])
    (finding,) = asyncio.run(
        check_guard(server, rules[:1], known=Catalogue(tuple(rules)), accounts=[EXPIRE], place=PLACE)
    )
    assert finding.level is Level.OK


def test_account_with_another_name_is_reported_as_unbound():
    mine = Account("mine", "sweep", frozenset())
    *_, finding = check(Server([POLICY, STOPS[0]], [BINDING, STOPS[1]]), accounts=(EXPIRE, mine))
    assert "system:serviceaccount:ttl-after-finished:mine" in finding.detail
    assert "--user=system:serviceaccount:ttl-after-finished:mine" in finding.fix


def test_installation_without_deleting_accounts_needs_no_guard():
    assert check(Server(), accounts=(Account("source", "source", frozenset()),)) == []
    assert check(Server(), rules=()) == []


def test_guard_that_cannot_be_read_warns():
    (finding,) = check(Server(error=ForbiddenError("policies are forbidden")))
    assert (finding.level, finding.what) == (Level.WARN, "delete guard")
    assert "cannot be checked: policies are forbidden" in finding.detail


def test_cluster_without_admission_policies_warns():
    (finding,) = check(Server(served=False))
    assert (finding.level, "does not serve ValidatingAdmissionPolicies" in finding.detail) == (Level.WARN, True)


def test_unchecked_conditions_are_listed_once_if_kinds_differ():
    names = ("taskruns.tekton.dev", "workflows.argoproj.io")
    run, workflow = (kind_rule(name).model_copy(update={"deadline": None}) for name in names)
    assert not_checked([run]) != not_checked([workflow])
    policies, bindings = zip(*(guard([one], NAMESPACE) for one in (run, workflow)), strict=True)
    (finding,) = check(Server(policies, bindings), (run, workflow))
    assert finding.detail.count("the finish time") == 1
