"""Check that no other namespace has an installation: two share the names of their roles and guards, but no policy."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shared.core.values.objects import get_text
from shared.doctor.findings import Finding, unknown, warn
from shared.installation.inventory import OURS, name_of, read_list
from shared.installation.place import Place
from shared.installation.rbac import DELETERS

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands do not need it
    from shared.adapters.kubernetes.cluster import KubernetesCluster

_WHAT = "other installations"
_ACCOUNTS = "/api/v1/serviceaccounts"
_NAMES_SHOWN = 5


async def check_other_installations(cluster: "KubernetesCluster", place: Place) -> list[Finding]:
    """Look for accounts of ours that delete, in other namespaces; nothing if there are none.

    Args:
        cluster: The cluster, with the operator's credentials.
        place: The installation.
    """
    labels = ",".join(f"{key}={value}" for key, value in OURS.items())
    found = await read_list(cluster, _ACCOUNTS, labelSelector=labels)
    if found.problem:
        return [unknown(_WHAT, found.problem, place)]
    deleting = {get_text(one, "metadata.namespace") for one in found.items if name_of(one) in DELETERS}
    return list(_describe(sorted(deleting - {place.namespace}), place))


def _describe(others: list[str], place: Place) -> Iterator[Finding]:
    if not others:
        return
    shown = ", ".join(others[:_NAMES_SHOWN]) + (", …" if len(others) > _NAMES_SHOWN else "")
    detail = (
        f"in namespace {shown}: each deletes by its own policy, also what the policy of another one keeps, and the "
        "cluster roles and guards bind the accounts of one of them only; remove all but one"
    )
    labels = ",".join(f"{key}={value}" for key, value in OURS.items())
    yield warn(_WHAT, detail, f"{place.kubectl} get serviceaccounts,deployments -A -l {labels}")
