"""The table of SECURITY.md about stolen tokens, compared with the rights that the manifests grant."""

import re
from collections.abc import Callable

import pytest

from tests.builders import ROOT
from tests.manifests.composed import composed
from tests.manifests.test_manifests import of_kind, rights_of

COMPONENTS = (
    *("kind-job", "deadline-delete/job", "source-apiserver/job", "source-watch", "sweep", "dead-letter", "eventpolicy"),
    *("usage", "usage-all-kinds", "proofs", "audit-reports", "ui"),
)
STANDALONE = ("standalone", "kind-job", "deadline-delete/job", "usage-rights", "usage-all-kinds", "audit-reports")
JOBS = ("batch", "jobs")

Right = tuple[str, str, str]
"""API group, resource, verb."""


def on(group: str, resource: str, *verbs: str) -> Callable[[Right], bool]:
    return lambda right: right[:2] == (group, resource) and right[2] in verbs


PHRASES: dict[str, Callable[[Right], bool]] = {
    "objects of the enabled kinds": on(*JOBS, "get", "list"),
    "children": on("", "pods", "get", "list"),
    "logs of pods": on("", "pods/log", "get"),
    "watch": on(*JOBS, "watch"),
    "delete finished objects": on(*JOBS, "delete"),
    "delete like `expire`": on(*JOBS, "delete"),
    "stop unfinished objects": on(*JOBS, "patch"),
    "namespaces,": on("", "namespaces", "get", "list"),
    "read namespaces": on("", "namespaces", "get", "list"),
    "get namespaces": on("", "namespaces", "get", "list"),
    "resourcequotas": on("", "resourcequotas", "list"),
    "apiservices": on("apiregistration.k8s.io", "apiservices", "list"),
    "admission policies": lambda right: right[0] == "admissionregistration.k8s.io" and right[2] == "get",
    "create events": lambda right: right[1:] == ("events", "create"),
    "and events": lambda right: right[1:] == ("events", "list"),
    "overwrite the": on("", "configmaps", "get", "update"),
    "read the shared state and the lease": lambda right: (
        right[1:] in {("configmaps", "get"), ("leases", "get"), ("leases", "list")}
    ),
    "block the lease": lambda right: right[1] == "leases",
    "list all policyreports": lambda right: right[0] == "wgpolicyk8s.io",
    "list all that may refer": lambda right: right[2] == "list",
    "content of all secrets": on("", "secrets", "get", "list"),
    "mark a secret or a configmap": lambda right: right[1:] in {("secrets", "patch"), ("configmaps", "patch")},
    "change and delete every secret and every configmap": lambda right: (
        right[1] in {"secrets", "configmaps"} and right[2] in {"get", "patch", "delete"}
    ),
    "configmaps and workloads of its own": lambda right: (
        right[1] in {"configmaps", "deployments", "statefulsets", "services", "containersources"} and right[2] == "list"
    ),
    "about tokens and rights": lambda right: right[1] in {"tokenreviews", "subjectaccessreviews"},
}
"""What a row may say, and the rights that it is about."""


def rows() -> dict[str, str]:
    """The text of each row, by account."""
    _, _, section = (ROOT / "SECURITY.md").read_text().partition("\n## What a stolen token can do\n")
    found = dict[str, str]()
    for line in section.splitlines():
        if line.startswith("| `"):
            _, accounts, *cells = line.split("|")
            found |= dict.fromkeys(re.findall(r"`([a-z]+)`", accounts), " ".join(cells).lower())
    return found


ROWS = rows()


def granted(account: str) -> set[Right]:
    parts = {"standalone": (STANDALONE, "namespace")}
    components, base = parts.get(account, (COMPONENTS, "base"))
    return rights_of(composed(*components, base=base), account)


def test_each_account_has_a_row():
    objects = [*composed(*COMPONENTS), *composed(*STANDALONE, base="namespace")]
    assert ROWS.keys() == of_kind(tuple(objects), "ServiceAccount").keys()


@pytest.mark.parametrize("account", ROWS)
def test_row_names_each_right_of_the_account_and_no_other(account):
    text, rights = ROWS[account], granted(account)
    of_others = set[Right]()
    for named in re.findall(r"all that ((?:`[a-z]+`(?:, | and )?)+) can", text):
        of_others = of_others.union(*map(granted, re.findall(r"`([a-z]+)`", named)))
    said = [phrase for phrase in PHRASES if phrase in text]
    own = rights - of_others
    assert sorted(right for right in own if not any(PHRASES[phrase](right) for phrase in said)) == []
    assert [phrase for phrase in said if not any(map(PHRASES[phrase], rights))] == []
    assert ("nothing" in text) is (not rights)
