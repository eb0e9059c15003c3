"""Every kind that finishes, driven through its life on a real API server, by what its operator writes."""

import base64
import re
import time
import urllib.error
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shared.adapters.kubernetes.requests import resource_path
from shared.core.kinds.rule import KindRule
from shared.core.values.objects import format_instant, parse_instant
from tests.builders import kind_cases, kind_rules
from tests.crds import BUILT_IN, crds_of
from tests.integration.conftest import Api, Run

_EPOCH_MILLISECONDS = re.compile(r"1[0-9]{12}")


def finishing_rules(scope: str) -> dict[str, KindRule]:
    """By file name: those of a scope that need a CRD, one for each CRD."""
    rules: dict[str, KindRule] = {}
    for name, rule in kind_rules().items():
        is_wanted = rule.group not in BUILT_IN and rule.scope == scope and not rule.never_finishes
        if is_wanted and rule.name not in {r.name for r in rules.values()}:
            rules[name] = rule
    return rules


NAMESPACED, CLUSTER_SCOPED = finishing_rules("Namespaced"), finishing_rules("Cluster")


def fixtures(name: str) -> tuple[Any, Any]:
    """An object of the kind that runs, and one that is finished with a time that is known."""
    cases = kind_cases()[name]
    running = next(case["object"] for case in cases if case["expect"]["finished"] is False)
    ended = next((case for case in cases if case["expect"]["finished"] and case["expect"].get("at")), None)
    assert ended is not None, f"no fixture of {name} is finished at a known time"
    return running, moved(
        ended["object"], datetime.now(UTC).replace(microsecond=0) - parse_instant(ended["expect"]["at"])
    )


def moved(value: Any, by: timedelta) -> Any:
    """The same with all instants moved."""
    if isinstance(value, dict):
        return {key: moved(one, by) for key, one in value.items()}
    if isinstance(value, list):
        return [moved(one, by) for one in value]
    if isinstance(value, int | str) and not isinstance(value, bool) and _EPOCH_MILLISECONDS.fullmatch(str(value)):
        return type(value)(int(value) + int(by.total_seconds() * 1_000))
    try:
        return format_instant(parse_instant(value) + by)
    except (ValueError, OverflowError):
        return value


def at_generation(value: Any, present: dict[str, int]) -> Any:
    """The same, observed at the present generation where it names one."""
    return value | present if "observedGeneration" in value else value


class Life:
    """One object of one kind."""

    def __init__(self, api: Api, rule: KindRule, namespace: str, ttl_seconds: int) -> None:
        self.api, self.rule, self.ttl = api, rule, f"{ttl_seconds}s"
        self.collection = resource_path(rule, namespace if rule.scope == "Namespaced" else "")
        self.path = f"{self.collection}/one"

    def is_served(self) -> bool:
        try:
            return self.api.get(self.collection) is not None
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.TOO_MANY_REQUESTS:  # its storage is being made
                return False
            raise

    def is_there(self) -> bool:
        return self.api.get(self.path) is not None

    def begin(self, fixture: Any) -> None:
        annotations = fixture["metadata"].get("annotations", {}) | {"ttlafterfinished.dev/ttl": self.ttl}
        self._post(fixture, annotations)
        self._write_status(fixture)

    def write(self, fixture: Any, *, instead_of: Any) -> None:
        """What an operator does: labels, annotations and spec by one write, the status by another."""
        metadata = {
            key: dict.fromkeys(instead_of["metadata"].get(key, {})) | fixture["metadata"].get(key, {})
            for key in ("labels", "annotations")
        }
        self.api.call("PATCH", self.path, {"metadata": metadata, "spec": fixture.get("spec", {})})
        self._write_status(fixture)

    def _post(self, fixture: Any, annotations: Any) -> None:
        metadata = {"name": "one", "annotations": annotations, "labels": fixture["metadata"].get("labels", {})}
        body = {"apiVersion": self.rule.api_version, "kind": self.rule.kind, "metadata": metadata}
        self.api.call("POST", self.collection, body | {"spec": fixture.get("spec", {})})

    def _write_status(self, fixture: Any) -> None:
        obj = self.api.get(self.path)
        present = {"observedGeneration": obj["metadata"]["generation"]}
        status = at_generation(fixture.get("status") or {}, present)
        if isinstance(status.get("conditions"), list):
            status = status | {"conditions": [at_generation(one, present) for one in status["conditions"]]}
        self.api.call("PUT", f"{self.path}/status", obj | {"status": status})


class Lives:
    """One object of each kind."""

    def __init__(self, api: Api, namespace: str, rules: dict[str, KindRule], ttl_seconds: int) -> None:
        self.api = api
        self.by_name = {name: Life(api, rule, namespace, ttl_seconds) for name, rule in rules.items()}
        self.ended_at: dict[str, datetime] = {}

    def begin(self) -> None:
        for name, life in self.by_name.items():
            self.api.wait(f"the CRD of {name}", life.is_served)
            life.begin(fixtures(name)[0])

    def end(self) -> None:
        for name, life in self.by_name.items():
            running, ended = fixtures(name)
            life.write(ended, instead_of=running)
            self.ended_at[name] = datetime.now(UTC) - timedelta(seconds=2)  # its time is of whole seconds, and earlier

    def run_again(self) -> None:
        for name, life in self.by_name.items():
            running, ended = fixtures(name)
            life.write(running, instead_of=ended)

    def are_gone(self) -> set[str]:
        return {name for name, life in self.by_name.items() if not life.is_there()}

    def wait_for_the_end(self) -> dict[str, datetime]:
        """When each was gone."""
        gone: dict[str, datetime] = {}

        def all_gone() -> bool:
            gone.update(dict.fromkeys(self.are_gone() - gone.keys(), datetime.now(UTC)))
            return len(gone) == len(self.by_name)

        try:
            self.api.wait("the deletion of all", all_gone, 60)
        finally:
            print("still there:", sorted(self.by_name.keys() - gone.keys()))
        return gone


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("rules", "ttl_seconds"),
    [(NAMESPACED, 35), (CLUSTER_SCOPED, 3)],  # longer than it takes to write an object of each kind
    ids=["namespaced", "cluster-scoped"],
)
def test_object_of_each_kind_is_kept_while_it_runs_and_deleted_when_due(
    rules: dict[str, KindRule], ttl_seconds: int, api: Api, namespace: str, start_run: Callable[..., Run]
) -> None:
    for crd in crds_of(rules.values()):
        api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    lives = Lives(api, namespace, rules, ttl_seconds)
    lives.begin()
    run = start_run("--kinds", ",".join(rule.name for rule in rules.values()), everywhere=rules is CLUSTER_SCOPED)
    api.wait("the first sweep", lambda: "sweep at start" in run.text)
    time.sleep(2)  # that nothing happens takes time
    assert lives.are_gone() == set()

    lives.end()
    api.wait("a timer for each", lambda: run.text.count("timer-set") >= len(rules))
    lives.run_again()
    time.sleep(ttl_seconds + 1)
    assert lives.are_gone() == set()

    lives.end()
    gone = lives.wait_for_the_end()
    assert [name for name in gone if gone[name] < lives.ended_at[name] + timedelta(seconds=ttl_seconds)] == []


def test_kinds_include_many_namespaced_and_cluster_scoped_ones() -> None:
    assert len(NAMESPACED) >= 10
    assert CLUSTER_SCOPED


class Requests:
    """CertificateSigningRequests, and what approvers and signers write."""

    PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

    def __init__(self, api: Api) -> None:
        self.api = api
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "developer")])

    def ask(self, name: str) -> None:
        signed = x509.CertificateSigningRequestBuilder(self.subject).sign(self.key, hashes.SHA256())
        spec = {"signerName": "example.com/tests", "usages": ["client auth"], "request": text_of(signed)}
        metadata = {"name": name, "annotations": {"ttlafterfinished.dev/ttl": "1s"}}
        self.api.call("POST", self.PATH, {"metadata": metadata, "spec": spec})

    def evaluator(self, name: str, verdict: str) -> None:
        request = self.api.get(f"{self.PATH}/{name}")
        condition = {"type": verdict, "status": "True", "reason": "Tests", "message": "by a test"}
        body = request | {"status": {"conditions": [condition]}}
        self.api.call("PUT", f"{self.PATH}/{name}/approval", body)

    def sign(self, name: str) -> None:
        now = datetime.now(UTC)
        who = self.subject, self.subject, self.key.public_key()
        until = now + timedelta(days=1)
        signed = x509.CertificateBuilder(*who, x509.random_serial_number(), now, until).sign(self.key, hashes.SHA256())
        self.api.call("PATCH", f"{self.PATH}/{name}/status", {"status": {"certificate": text_of(signed)}})

    def names(self) -> set[str]:
        return {one["metadata"]["name"] for one in self.api.get(self.PATH)["items"]}


def text_of(signed: x509.Certificate | x509.CertificateSigningRequest) -> str:
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


def test_certificate_request_is_deleted_once_signed_or_denied_and_kept_while_approved(
    api: Api, start_run: Callable[..., Run]
) -> None:
    requests = Requests(api)
    for name in ("waiting", "approved", "signed", "denied"):
        requests.ask(name)
    requests.evaluator("approved", "Approved")
    requests.evaluator("signed", "Approved")
    run = start_run("--kinds", "csr", "-v", everywhere=True)
    api.wait("the first sweep", lambda: "sweep at start" in run.text)
    time.sleep(2)  # that nothing happens takes time
    assert requests.names() == {"waiting", "approved", "signed", "denied"}

    requests.evaluator("denied", "Denied")
    requests.sign("signed")
    api.wait("the end of both", lambda: requests.names() == {"waiting", "approved"})
    assert run.stop() == 0
