"""The rights of our service accounts, and the rights that they used."""

import json
from pathlib import Path

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


def asked(log: Path, *, installation: str, since: int = 0) -> dict[str, dict[Right, set[int]]]:
    """By account: what it asked the API server for, with the statuses it was answered, by the server's audit log.

    Args:
        log: The server's audit log.
        installation: Its namespace.
        since: Lines of the log that are not looked at.
    """
    prefix = f"system:serviceaccount:{installation}:"
    found: dict[str, dict[Right, set[int]]] = {}
    for line in log.read_text().splitlines()[since:]:
        event = json.loads(line)
        user, ref = event["user"]["username"], event.get("objectRef")
        if not user.startswith(prefix) or ref is None:
            continue
        resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
        right = (event["verb"], ref.get("apiGroup", ""), resource)
        statuses = found.setdefault(user.removeprefix(prefix), {}).setdefault(right, set())
        statuses.add(event.get("responseStatus", {}).get("code", 0))
    return found
