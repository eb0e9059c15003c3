"""The list of the Events of the journal, in which a user has forged large ones."""

import pytest

from shared.adapters.kubernetes.cluster import KubernetesCluster
from shared.adapters.kubernetes.journal_events import RECORD, event_of
from shared.cli.objects.journal import find_entries
from tests.journals import entry

pytestmark = pytest.mark.anyio

ANNOTATION_CHARACTERS = 250_000
"""Nearly what the API server accepts."""

FORGED = 70
"""More than one answer may have: 16 MiB."""


async def test_deletions_are_found_among_many_large_events(api, cluster):
    if not isinstance(cluster, KubernetesCluster):
        return  # the double has no bytes
    await cluster.create_event(event_of(entry("build", api.namespace), "x"))
    for number in range(FORGED):
        forged = event_of(entry(f"forged-{number}", api.namespace), "x")
        forged["metadata"]["annotations"] = {RECORD: "[" * ANNOTATION_CHARACTERS}
        await cluster.create_event(forged)

    found = await find_entries(cluster, namespace=api.namespace, most=FORGED + 1)

    assert len(found.named) == FORGED + 1
    assert [one.data["ttlFrom"] for one in found.named if one.ref.name == "build"] == ["policy rule ci"]


async def test_forged_deletion_in_another_namespace_is_not_found(api, cluster):
    if not isinstance(cluster, KubernetesCluster):
        return  # as above
    forged = event_of(entry("build", "kube-system"), "x")
    forged["metadata"]["namespace"] = api.namespace

    await cluster.create_event(forged)  # the API server accepts it

    assert (await find_entries(cluster, namespace=api.namespace)).named == []
