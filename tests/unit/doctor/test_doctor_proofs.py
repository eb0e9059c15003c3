"""The check of deletions without a read: it names each condition that does not hold."""

import asyncio

import pytest

from shared.core.kinds.rule import Catalogue
from shared.doctor.findings import Level
from shared.doctor.proofs import check_proofs
from shared.errors import ForbiddenError
from shared.installation.guards import guard
from shared.installation.inventory import PARTS, Inventory, Listed
from shared.installation.place import Place
from tests.builders import JOB, TRAINJOB

NAMESPACE = "ttl-after-finished"
PLACE = Place(NAMESPACE, manifests="knative")
KINDS = Catalogue((JOB, TRAINJOB))
KEY = {"name": "TTL_PROOF_KEY", "valueFrom": {"secretKeyRef": {"name": "proof-key", "key": "key"}}}
CALLERS = {"name": "TTL_CALLERS", "value": "someone"}


class Answer:
    def __init__(self, body):
        self.body = body


class Server:
    """Has the guards of both kinds, unless a test takes them away."""

    def __init__(self, guarded=(JOB, TRAINJOB), aggregated=(), error=None):
        made = [one for rule in guarded for one in guard([rule], NAMESPACE)]
        self.made = {(one["kind"].lower(), one["metadata"]["name"]): one for one in made}
        self.aggregated, self.error = aggregated, error

    async def request(self, _method, path, **_options):
        *_, plural, name = path.partition("?")[0].split("/")
        kind = {"validatingadmissionpolicies": "validatingadmissionpolicy"}.get(plural, plural.removesuffix("s"))
        found = self.made.get((kind, name))
        return Answer(found) if found else None

    async def is_aggregated(self, rule):
        if self.error:
            raise self.error
        return rule in self.aggregated


def service(name, *variables):
    container = {"name": "user-container", "env": list(variables)}
    labels = {"app.kubernetes.io/name": "ttl-after-finished"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"template": {"spec": {"containers": [container]}}}}


def broker(**condition):
    """A Broker with what Knative writes if an EventPolicy is in force, or with another condition."""
    about = {"type": "EventPoliciesReady", "status": "True", **condition}
    return {"metadata": {"name": "default"}, "status": {"conditions": [about]}}


OIDC_DISABLED = broker(
    reason="OIDCDisabled", message='Feature "authentication-oidc" must be enabled to support Authorization'
)
BY_DEFAULT = broker(reason="DefaultAuthorizationMode", message='Default authz mode is "Allow-Same-Namespace"')
NOT_READY = broker(status="False", reason="EventPoliciesNotReady", message="event policies sources are not ready")


def findings_of(server, expire=(KEY, CALLERS), sweep=(KEY,), source=(KEY,), broker=broker(), apiserver=(), unread=None):  # noqa: B008
    objects = {
        "Knative Service": (service("expire", *expire), service("sweep", *sweep)),
        "ContainerSource": (service("source", *source),),
        "ApiServerSource": apiserver,
        "Broker": (broker,) if broker else (),
    }
    found = Inventory({part: Listed(objects.get(part, ()), (unread or {}).get(part, "")) for part in PARTS})
    return asyncio.run(check_proofs(server, found, KINDS.rules, known=KINDS, place=PLACE))


def check(server, **variables):
    return [(one.level, one.detail) for one in findings_of(server, **variables)]


def test_nothing_is_reported_without_a_key():
    assert check(Server(), expire=(CALLERS,)) == []


def test_kinds_are_named_if_all_conditions_hold():
    ((level, detail),) = check(Server())

    assert level is Level.OK
    assert "jobs.batch" in detail


@pytest.mark.parametrize(
    ("server", "variables", "problem"),
    [
        (Server(), {"expire": (KEY,)}, "TTL_CALLERS"),
        (Server(), {"sweep": ()}, "sweep has no TTL_PROOF_KEY"),
        (Server(), {"source": ()}, "the ContainerSource source has no TTL_PROOF_KEY"),
        (Server(), {"apiserver": (service("job"),)}, "the objects that it reports are read: job"),
        (Server(), {"broker": OIDC_DISABLED}, 'Feature "authentication-oidc" must be enabled'),
        (Server(), {"broker": BY_DEFAULT}, 'Default authz mode is "Allow-Same-Namespace"'),
        (Server(), {"broker": NOT_READY}, "event policies sources are not ready"),
        (Server(), {"broker": {"metadata": {"name": "default"}}}, "it has no condition EventPoliciesReady"),
        (Server(), {"broker": None}, "the namespace has no Broker"),
        (
            Server(),
            {"broker": None, "unread": {"Broker": "brokers is forbidden"}},
            "cannot be checked: brokers is forbidden",
        ),
        (Server(), {"unread": {"ApiServerSource": "it is forbidden"}}, "cannot be checked: it is forbidden"),
        (Server(guarded=(TRAINJOB,)), {}, "jobs.batch"),
        (Server(aggregated=(TRAINJOB,)), {}, "aggregated API server, or unknown, so objects are read: trainjobs"),
        (Server(error=ForbiddenError("no")), {}, "jobs.batch, trainjobs"),
    ],
    ids=[
        "callers",
        "key of sweep",
        "key of source",
        "source of Knative",
        "OIDC disabled",
        "no EventPolicy",
        "EventPolicy not ready",
        "no condition",
        "no Broker",
        "Brokers unread",
        "sources unread",
        "guard",
        "aggregated",
        "APIServices unread",
    ],
)
def test_condition_that_does_not_hold_is_named(server, variables, problem):
    ((level, detail),) = check(server, **variables)

    assert level is Level.WARN
    assert problem in detail


def fixes(**variables):
    return [one.fix for one in findings_of(Server(), **variables)]


def test_fix_fits_the_reason():
    (off,), (missing,) = fixes(broker=OIDC_DISABLED), fixes(broker=BY_DEFAULT)
    assert """-p '{"data":{"authentication-oidc":"enabled"}}'""" in off
    assert "after you add components/eventpolicy to your overlay" in missing
    (unread,) = fixes(broker=None, unread={"Broker": "brokers is forbidden"})
    assert "auth whoami" in unread
    (source,) = fixes(source=())
    assert "list components/proofs after components/source-watch in your overlay" in source
