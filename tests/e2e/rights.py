"""The rights of our service accounts, and the rights that they used."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.cluster import kubectl

Right = tuple[str, str, str]
"""Verb, API group, resource with its subresource."""


def granted(account: str, *, installation: str, namespace: str) -> set[Right]:
    """What an account may do in a namespace, beyond what every account may: `kubectl auth can-i --list`."""
    of_every_account = _rules("system:serviceaccount:default:nobody", namespace)  # codespell:ignore nobody
    return _rules(f"system:serviceaccount:{installation}:{account}", namespace) - of_every_account


def _rules(user: str, namespace: str) -> set[Right]:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    groups = ["--as-group=system:serviceaccounts", "--as-group=system:authenticated"]
    answer = kubectl(
        "create", "--validate=false", "-o", "json", f"--as={user}", *groups, "-f", "-", given=json.dumps(review)
    )
    return {
        (verb, group, resource)
        for rule in json.loads(answer)["status"]["resourceRules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", [])
    }


def audit_log() -> Path | None:
    """The API server's audit log; None where it is not known, which CI does not accept."""
    path = os.environ.get("E2E_AUDIT_LOG")
    assert path or not os.environ.get("CI")
    return Path(path) if path else None


def asked(log: Path, *, installation: str, since: int = 0) -> dict[str, dict[Right, set[int]]]:
    """By account: what it asked the API server for, with the statuses it was answered, by the server's audit log.

    Args:
        log: The server's audit log.
        installation: Its namespace.
        since: Lines of the log that are not looked at.
    """
    found: dict[str, dict[Right, set[int]]] = {}
    for account, call in _calls(log, installation, since):
        ref = call["objectRef"]
        resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
        right = (call["verb"], ref.get("apiGroup", ""), resource)
        statuses = found.setdefault(account, {}).setdefault(right, set())
        statuses.add(call.get("responseStatus", {}).get("code", 0))
    return found


def refused(calls: dict[str, dict[Right, set[int]]]) -> set[tuple[str, ...]]:
    """The account and the right of each call that was answered with 403."""
    return {(account, *right) for account, rights in calls.items() for right, seen in rights.items() if 403 in seen}


def deletes(log: Path, *, installation: str, namespace: str, name: str) -> list[tuple[str, Any]]:
    """Each DELETE of an object that took place: the account, and the preconditions."""
    found = []
    for account, call in _calls(log, installation):
        ref = call["objectRef"]
        is_about = (call["verb"], ref.get("namespace"), ref.get("name")) == ("delete", namespace, name)
        if is_about and call["responseStatus"]["code"] == 200:
            found.append((account, call["requestObject"].get("preconditions")))
    return found


def _calls(log: Path, installation: str, since: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """The account and the call, of each call of ours that is about objects."""
    prefix = f"system:serviceaccount:{installation}:"
    written, _, _ = log.read_text().rpartition("\n")  # the rest is a line that is being written
    for line in written.splitlines()[since:]:
        call = json.loads(line)
        user = call["user"]["username"]
        if user.startswith(prefix) and "objectRef" in call:
            yield user.removeprefix(prefix), call


def calls_by_object(log: Path, *, installation: str, namespace: str) -> dict[str, Counter[tuple[str, str, int]]]:
    """How often each account asked for what about each object of a namespace, by its name: account, verb, status."""
    found: dict[str, Counter[tuple[str, str, int]]] = {}
    for account, call in _calls(log, installation):
        ref = call["objectRef"]
        if ref.get("namespace") == namespace and "name" in ref:
            status = call.get("responseStatus", {}).get("code", 0)
            found.setdefault(ref["name"], Counter())[account, call["verb"], status] += 1
    return found
