"""What depends on the version of Kubernetes. `make verify` runs this file on each version that is documented."""

import json
import re
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.devserver.real_servers import RealServer, real_server
from shared.installation.guards import guards
from shared.installation.usage_guard import usage_guards
from tests.builders import shipped_kinds
from tests.integration.conftest import Api
from tests.required import required_assets

ROOT = Path(__file__).parents[2]
COMPONENTS = ROOT / "knative/components"
PAGE = ROOT / "docs/explanation/kubernetes-versions.md"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
GATES = ("--feature-gates=AllBeta=true,AllAlpha=true",)
OLDER_BY = 3
"""How many minor versions an API server can emulate backwards."""


def shipped_policies() -> Iterator[Any]:
    """All admission policies: those of the components, and the guards of all kinds."""
    for path in sorted(COMPONENTS.rglob("*.yaml")):
        text = path.read_text()
        yield from yaml.safe_load_all(text) if "kind: ValidatingAdmissionPolicy" in text else ()
    made = [*guards(shipped_kinds().rules, "ttl-system"), *usage_guards("ttl-system")]
    yield from (one.body for one in made)


def refusals(api: Api) -> list[str]:
    """What the API server says of the policies that it does not accept; nothing is stored."""
    found, policies = [], [one for one in shipped_policies() if one["kind"] == "ValidatingAdmissionPolicy"]
    assert len(policies) > 200
    for policy in policies:
        try:
            api.call("POST", f"{POLICIES}?dryRun=All", policy)
        except urllib.error.HTTPError as error:
            with error:
                found.append(json.load(error)["message"])
    return found


def table() -> list[list[str]]:
    """The cells of the table of the documentation; the first row has the versions."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def documented(version: str) -> dict[str, str]:
    """What the documentation says of the kinds in a version, by the name of the kind."""
    header, _, *rows = table()
    column = header.index(version)
    named = [(re.search(r"kind `([^`]+)`", row[0]), row[column]) for row in rows]
    return {found[1]: state for found, state in named if found}


def served(api: Api) -> set[str]:
    """The kinds that an API server serves in a version that their rules know."""
    rules = {f"{rule.plural}.{rule.group}": rule for rule in shipped_kinds().rules if rule.group}
    versions = {version for rule in rules.values() for version in rule.api_versions}
    lists = {version: api.get(f"/apis/{version}") or {"resources": []} for version in versions}
    found = {f"{one['name']}.{version.partition('/')[0]}" for version, it in lists.items() for one in it["resources"]}
    return found & set(rules)


def minor_of(server: RealServer) -> int:
    return int(Api(server).get("/version")["minor"])


@pytest.mark.smoke
def test_documentation_has_the_status_of_options_that_cannot_be_decoded(server, api):
    row = next(cells for cells in table() if "cannot be decoded" in cells[0])
    with pytest.raises(urllib.error.HTTPError) as refused:
        api.call("DELETE", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", {"dryRun": "All"})
    refused.value.close()
    assert str(refused.value.code) == row[table()[0].index(f"1.{minor_of(server)}")]


@pytest.mark.smoke
def test_every_admission_policy_is_accepted(api):
    assert refusals(api) == []


@pytest.mark.smoke
def test_every_admission_policy_is_accepted_by_an_older_kubernetes(server):
    """Without this version's own additions to CEL: a policy that cannot be installed protects no object."""
    older = f"1.{minor_of(server) - OLDER_BY}"
    args = [f"--emulated-version={older}"]
    with real_server(required_assets(), fsync=False, apiserver_args=args) as emulating:
        assert refusals(Api(emulating)) == []


@pytest.mark.smoke
def test_documentation_names_the_kinds_that_kubernetes_serves(server, api):
    """By default, and with each API enabled."""
    expected = documented(f"1.{minor_of(server)}")
    assert len(expected) == 5
    assert {kind for kind, state in expected.items() if state == "served"} == served(api) & set(expected)
    with real_server(
        required_assets(), fsync=False, apiserver_args=["--runtime-config=api/all=true", *GATES]
    ) as all_of_it:
        found = served(Api(all_of_it))
    assert {kind for kind, state in expected.items() if state != "absent"} == found & set(expected)
