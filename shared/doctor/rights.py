"""Check the RBAC rights of each account, with access reviews by the API server."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.values.objects import get_in, get_text, list_mappings
from shared.doctor.findings import Finding, fail, ok, unknown, warn
from shared.errors import ForbiddenError, TtlError
from shared.installation.inventory import Inventory, Obj, environment_of, name_of
from shared.installation.kind_manifests import component_of
from shared.installation.place import Place
from shared.installation.rbac import OF_PROOFS, STATEFUL, WRITERS, Right, lease_needs, needs_of, state_needs

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster


_REVIEWS = "/apis/authorization.k8s.io/v1"
_BINDINGS = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS_IN_FLIGHT_MAX = 16
"""Access reviews in flight at the same time."""

_PAGE = "ui"
_AGGREGATED = ("expire", "enforce", "archive", "sweep", "usage", "source", "standalone", _PAGE)
"""The roles that get rights by an aggregated ClusterRole."""


@dataclass(frozen=True, slots=True)
class Account:
    """A ServiceAccount.

    Attributes:
        name: The name of the ServiceAccount.
        role: Its role in this project.
        needs: The rights that the role needs.
    """

    name: str
    role: str
    needs: frozenset[Right]


def accounts_of(
    found: Inventory, rules: tuple[KindRule, ...], kinds: Catalogue, *, namespace: str
) -> Iterator[Account]:
    """Yield the accounts of workloads, sources and pages, each with the rights that it needs for the enabled kinds."""
    for _, workload in found.workloads():
        name = _account_name(workload)
        role = name_of(workload)
        needs = needs_of(role, rules) | (lease_needs(namespace) if role == "standalone" else frozenset())
        if role in STATEFUL:
            needs |= state_needs(namespace)
        if role in WRITERS:
            needs |= _of_proofs(workload)
        if role == "deadletter":
            needs = frozenset({Right("", "events", "create", namespace)})
        if needs:
            yield Account(name, role, needs)
    yield from _sources(found, rules, kinds)
    for page in found.pages():
        yield Account(_account_name(page), _PAGE, needs_of(_PAGE, rules))


def _sources(found: Inventory, rules: tuple[KindRule, ...], kinds: Catalogue) -> Iterator[Account]:
    watched: defaultdict[str, set[Right]] = defaultdict(set)
    for source in found.all("ApiServerSource"):
        known = [kinds.get(get_text(one, "apiVersion"), get_text(one, "kind")) for one in _resources(source)]
        watched[get_text(source, "spec.serviceAccountName") or "default"] |= needs_of("source", filter(None, known))
    for source in found.all("ContainerSource"):
        watched[_account_name(source)] |= needs_of("watch", rules)
    for name, rights in sorted(watched.items()):
        yield Account(name, "source", frozenset(rights))


def _account_name(workload: Obj) -> str:
    return get_text(workload, "spec.template.spec.serviceAccountName") or "default"


async def check_rights(
    cluster: "KubernetesCluster", accounts: Iterable[Account], place: Place, *, is_named: bool = True
) -> list[Finding]:
    """Check every right of every account.

    Args:
        cluster: The cluster, with the operator's credentials.
        accounts: The accounts, with the rights that they need.
        place: The installation.
        is_named: Whether the settings name the kinds. If TTL_KINDS is `all`, a kind without rights only warns.
    """
    limit = asyncio.Semaphore(REVIEWS_IN_FLIGHT_MAX)
    found = await asyncio.gather(
        *(_check_account(cluster, one, place=place, limit=limit, is_named=is_named) for one in accounts)
    )
    return [finding for findings in found for finding in findings]


async def _check_account(
    cluster: "KubernetesCluster", account: Account, *, place: Place, limit: asyncio.Semaphore, is_named: bool
) -> list[Finding]:
    async def ask(right: Right) -> bool:
        async with limit:
            return await is_allowed(cluster, right, namespace=place.namespace, account=account.name)

    needs = sorted(account.needs)
    try:
        allowed = dict(zip(needs, await asyncio.gather(*map(ask, needs)), strict=True))
    except TtlError as error:
        return [unknown(f"rights of {account.name}", str(error), place)]
    if not all(allowed.values()) and (missing := await _missing_binding(cluster, account, place)):
        return [missing]
    return list(report_rights(account, allowed, place, is_named=is_named))


def report_rights(
    account: Account, allowed: dict[Right, bool], place: Place, *, is_named: bool = True
) -> Iterator[Finding]:
    """Report the rights of an account: one finding for each resource."""
    by_resource: defaultdict[tuple[str, str], list[Right]] = defaultdict(list)
    for right in sorted(account.needs):
        by_resource[right.group, right.resource].append(right)
    for (group, resource), rights in by_resource.items():
        is_event = (group, resource) == ("events.k8s.io", "events")  # the core group has Events, too
        what = f"rights of {account.name} on {resource}{f'.{group}' * is_event}"
        missing = [right for right in rights if not allowed[right]]
        if not missing:
            yield ok(what, ", ".join(right.verb for right in rights))
            continue
        verbs, fix = ", ".join(right.verb for right in missing), _fix(account, missing, place)
        if account.role == _PAGE:  # no deletion depends on it
            yield warn(what, f"may not {verbs}: the page does not show these objects", fix)
        elif not is_named and missing == rights and _is_of_kind(rights[0]):
            yield warn(what, "none: TTL_KINDS is all, so this kind is skipped", fix)
        else:
            yield fail(what, f"may not {verbs}", fix)


async def is_allowed(cluster: "KubernetesCluster", right: Right, *, namespace: str, account: str) -> bool:
    """Return whether an account has a right.

    The operator impersonates the account for a SelfSubjectAccessReview. Without the right to impersonate, the operator
    creates a SubjectAccessReview.

    Raises:
        ForbiddenError: The operator may do neither.
    """
    user = f"system:serviceaccount:{namespace}:{account}"
    attributes = {name: value for name, value in asdict(replace(right, read_for="")).items() if value}
    try:
        body: dict[str, Any] = {"spec": {"resourceAttributes": attributes}}
        answer = await cluster.request("POST", f"{_REVIEWS}/selfsubjectaccessreviews", body=body, as_user=user)
    except ForbiddenError:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        body = {"spec": {"resourceAttributes": attributes, "user": user, "groups": groups}}
        answer = await cluster.request("POST", f"{_REVIEWS}/subjectaccessreviews", body=body)
    return get_in(answer.body if answer else {}, "status.allowed") is True


async def _missing_binding(cluster: "KubernetesCluster", account: Account, place: Place) -> Finding | None:
    """Report a missing ClusterRole or binding of the rights on kinds; None if none is known to be missing.

    Without them, adding the rights of a single kind does not help.
    """
    if account.role not in _AGGREGATED:
        return None
    name = f"ttl-after-finished-{account.role}"
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        try:
            answer = await cluster.request("GET", f"{_BINDINGS}/{kind.lower()}s/{name}", missing_ok=True)
        except TtlError:
            return None
        if answer is None:
            detail = f"the {kind} {name} does not exist, so the account has no rights on any kind"
            if account.role == _PAGE:
                return warn(f"rights of {account.name}", detail, place.apply(components=["ui"]))
            overlay = "standalone" if account.role == "standalone" else "knative"
            return fail(f"rights of {account.name}", detail, place.apply(shipped=overlay))
    return None


def _fix(account: Account, rights: list[Right], place: Place) -> str:
    """Return the command that grants the missing rights.

    The rights on a kind come by an aggregated ClusterRole; others by shipped manifests, else by a new role and binding.
    """
    group, resource = _granted_with(rights[0])
    if account.role in _AGGREGATED:
        if paths := list(_shipped(account.role, group, resource)):
            return place.apply_files(*paths)
        if _is_of_kind(rights[0]):
            with_source = account.role == "source" and any(right.verb == "get" for right in rights)
            return place.join(f"{resource}.{group}" if group else resource, with_source=with_source)
    if resource == "configmaps":  # a new role would grant the rights on all ConfigMaps, not on one name
        return place.apply(shipped="standalone" if account.role == "standalone" else "knative")
    name = f"ttl-after-finished-{account.name}-{resource}"
    full = f"{resource}.{group}" if group else resource
    verbs = ",".join(right.verb for right in rights)
    kind, where = ("role", f" -n {rights[0].namespace}") if rights[0].namespace else ("clusterrole", "")
    return (
        f"{place.kubectl} create {kind} {name}{where} --verb={verbs} --resource={full} && "
        f"{place.kubectl} create {kind}binding {name}{where} --{kind}={name} "
        f"--serviceaccount={place.namespace}:{account.name}"
    )


_OF_NO_KIND = {
    ("", "events"): "namespace/events.yaml",
    ("events.k8s.io", "events"): "namespace/journal.yaml",
    ("", "namespaces"): "namespace/namespaces.yaml",
    ("", "resourcequotas"): "namespace/resourcequotas.yaml",
    ("apiregistration.k8s.io", "apiservices"): "namespace/apiservices.yaml",
}
"""The resources whose objects never finish, each with the shipped file that grants its rights."""


def _granted_with(right: Right) -> tuple[str, str]:
    """Return the group and the plural of the kind whose manifests grant a right."""
    plural, _, group = right.read_for.partition(".")
    return (group, plural) if plural else (right.group, right.resource)


def _is_of_kind(right: Right) -> bool:
    """Return whether a right is on objects that finish, on their owners, or on objects that set their TTL."""
    return not right.namespace and (right.group, right.resource) not in _OF_NO_KIND


def _shipped(role: str, group: str, resource: str) -> Iterator[str]:
    """Yield the shipped files that grant a role its rights on a resource."""
    if role == "source" and (group, resource) == ("", "namespaces"):
        yield "components/source-watch/rbac.yaml"
    elif path := _OF_NO_KIND.get((group, resource)):
        yield path
    elif kind := component_of(group, resource):
        yield f"components/kind-{kind}/rbac.yaml"
        if role == "source":
            yield f"components/source-apiserver/{kind}/rbac.yaml"


def _of_proofs(workload: Obj) -> frozenset[Right]:
    """Return the rights that `expire` also needs if TTL_PROOF_KEY is set."""
    has_key = "TTL_PROOF_KEY" in environment_of(workload)
    return OF_PROOFS if has_key and name_of(workload) == "expire" else frozenset()


def _resources(source: Obj) -> Iterator[Any]:
    return list_mappings(source, "spec.resources")
