"""The component of `ui`: it reads only, checks each reader, and is no part of what deletes."""

import click
import pytest

from shared.cli.main import main
from shared.installation.inventory import PARTS, Inventory, Listed
from shared.safeguards.state_schema import NAME as STATE
from tests.builders import not_none
from tests.manifests.composed import composed
from tests.manifests.test_manifests import of_kind, rules_of

KINDS = ("kind-job", "kind-pod", "kind-trainjob")
BUILDS = [("base", ()), ("namespace", ("standalone",))]


@pytest.mark.parametrize(("base", "more"), BUILDS)
def test_account_of_the_page_writes_nothing_but_reviews(base, more):
    rules = rules_of(composed(*more, *KINDS, "ui", base=base), "ui")
    rights = {(resource, verb) for one in rules for resource in one["resources"] for verb in one["verbs"]}
    assert {one for one in rights if one[1] not in ("get", "list")} == {
        ("tokenreviews", "create"),
        ("subjectaccessreviews", "create"),
    }
    assert {("jobs", "list"), ("pods", "list"), ("trainjobs", "list")} <= rights
    assert not {resource for resource, _ in rights} & {"secrets", "pods/log", "*"}


def test_account_of_the_page_reads_only_the_state_of_other_namespaces():
    objects = composed(*KINDS, "ui", base="namespace")
    facts = of_kind(objects, "ClusterRole")["ttl-after-finished-ui-facts"]["rules"]
    named = {resource: one["resourceNames"] for one in facts for resource in one["resources"] if "resourceNames" in one}
    assert named == {"configmaps": [STATE], "leases": ["ttl-after-finished"]}


@pytest.mark.parametrize(("base", "more"), BUILDS)
def test_page_is_served_with_checks_of_each_reader(base, more):
    objects = composed(*more, "ui", base=base)
    (container,) = of_kind(objects, "Deployment")["ui"]["spec"]["template"]["spec"]["containers"]
    command = main.get_command(click.Context(main), "ui")
    given = dict(one.removeprefix("--").split("=") for one in container["args"])
    assert command is not None
    assert given.keys() <= {name for name in (one.name for one in command.params) if name}
    assert given["auth"] == "kubernetes"
    assert container["ports"][0]["containerPort"] == int(given["port"])
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "http"}


@pytest.mark.parametrize(("base", "more"), BUILDS)
def test_page_with_a_certificate_is_served_and_probed_by_https(base, more):
    objects = composed(*more, "ui", "ui/tls", base=base)
    pod = of_kind(objects, "Deployment")["ui"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command = not_none(main.get_command(click.Context(main), "ui"))
    options = {text: str(one.name) for one in command.params for text in one.opts}
    files = [one.partition("=")[2] for one in container["args"] if options[one.partition("=")[0]].startswith("tls_")]
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert files == [f"{mounted['ui-tls']}/tls.crt", f"{mounted['ui-tls']}/tls.key"]
    assert [one["secret"] for one in pod["volumes"] if one["name"] == "ui-tls"] == [{"secretName": "ui-tls"}]
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "http", "scheme": "HTTPS"}
    (port,) = of_kind(objects, "Service")["ui"]["spec"]["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("https", 443, "http")


def test_page_is_no_workload_of_an_installation():
    objects = composed("standalone", "ui", base="namespace")
    listed = {kind: Listed() for kind in PARTS}
    listed["Deployment"] = Listed(tuple(of_kind(objects, "Deployment").values()))
    assert [obj["metadata"]["name"] for _, obj in Inventory(listed).workloads()] == ["standalone"]
    assert [obj["metadata"]["name"] for obj in Inventory(listed).pages()] == ["ui"]


def test_page_may_reach_the_api_server_and_receives_nothing_from_other_pods():
    policies = of_kind(composed("ui", "network-policy"), "NetworkPolicy")
    allowed = policies["functions-to-apiserver"]["spec"]["podSelector"]["matchExpressions"][0]["values"]
    assert "ui" in allowed
