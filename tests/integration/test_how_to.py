"""The pages in docs/how-to as their readers type them: every command in order, against a real API server."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.kubernetes.journal_events import Sum, event_of, event_of_sum, key_of
from tests.integration.reader import CONTROLLERS, Reader, commands_of, needs_kubectl, reading
from tests.journals import entry
from tests.snippets import PAGES, read_blocks, write_files

pytestmark = [needs_kubectl, pytest.mark.timeout(400)]

MAY_FAIL = {
    "kubectl ttl doctor": "no Pod of the installation runs here",
    "kubectl -n ttl-after-finished logs": "as above",
    "kubectl ttl release --breaker": "no breaker is open",
    "kubectl ttl archive ls jobs ": "nothing is archived on this machine",
    "kubectl ttl archive get job/build-42 -n ci --policy policy.yaml": "as above",
    "kubectl ttl archive diff": "they differ",
    "kubectl -n ttl-after-finished create configmap": "the installation brought it",
}
ALL_SUCCEED = {"restore": ("kubectl ttl archive get",)}
"""By the name of a page: commands that succeed there, although they may fail on other pages."""

ARCHIVE = "file:///var/lib/ttl/"
"""Where the pages have the folder of an archive; the tests have it in the folder of the reader."""

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "renders.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Render", "plural": "renders", "singular": "render", "listKind": "RenderList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/shop:1", "command": ["false"]}]}
FLEET = """
kubectl create namespace ci && kubectl create namespace web &&
kubectl -n ci create cronjob nightly --image=busybox --schedule='0 3 * * *' -- true &&
kubectl -n web create deployment shop --image=busybox &&
kubectl apply -f crd.json && kubectl apply -k knative/overlays/standalone
"""
JOBS = """
for number in 1 2 3 4; do
    kubectl -n ci get job nightly-$number || kubectl -n ci create job nightly-$number --from=cronjob/nightly
done
kubectl -n ci wait --for=condition=Complete jobs --all --timeout=1m && sleep 1
kubectl -n ci get job nightly-5 || kubectl -n ci create job nightly-5 --from=cronjob/nightly
kubectl -n ci get job build-42 || kubectl -n ci create job build-42 --image=busybox -- true
kubectl -n ci wait --for=condition=Complete jobs --all --timeout=1m &&
kubectl -n ci annotate --overwrite job build-42 ttlafterfinished.dev/ttl-succeeded=0s ttlafterfinished.dev/archive- &&
kubectl annotate namespace ci ttlafterfinished.dev/archive-
"""
GITOPS = """
kubectl create namespace shop && kubectl -n shop create job migrate --image=busybox -- true &&
kubectl -n shop annotate job migrate argocd.argoproj.io/tracking-id=shop:batch/Job:shop/migrate &&
kubectl -n shop wait --for=condition=Complete job/migrate --timeout=1m
"""
"""A Job that Argo CD applies."""

UNUSED = """
kubectl -n ci create configmap web-7f9 --from-literal=a=1 --from-literal=b=2 &&
kubectl -n ci create configmap settings --from-literal=a=1 &&
kubectl -n ci create configmap web-8a1 --from-literal=a=1 &&
kubectl -n ci create secret generic db-old --from-literal=a=1 &&
kubectl -n ci create secret generic sh.helm.release.v1.web.v1 --type=helm.sh/release.v1 &&
kubectl -n ci create -f - <<'.'
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-6d5f}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: busybox}]
      volumes: [{name: settings, configMap: {name: web-8a1}}]
.
"""
"""What rollouts have left behind, and what the last one uses."""


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    return CONTROLLERS


@pytest.fixture
def reader(server: Any, api: Any, tmp_path: Path) -> Iterator[Reader]:
    with reading(server, api, tmp_path) as reader:
        yield reader


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.stem)
def test_how_to_works_in_order(page: Path, reader: Reader, api: Any) -> None:
    (reader.folder / "crd.json").write_text(json.dumps(CRD))
    write_files(read_blocks(page), reader.folder)
    for file in reader.folder.glob("*.yaml"):
        file.write_text(file.read_text().replace(ARCHIVE, f"file://{reader.folder}/"))
    if api.get("/api/v1/namespaces/ci") is None:
        code, printed = reader.shell(f"{FLEET.rstrip()} &&{UNUSED}")
        assert code == 0, printed
    code, printed = reader.shell(JOBS)
    assert code == 0, printed
    if page.stem == "gitops":
        code, printed = reader.shell(GITOPS)
        assert code == 0, printed
    if page.stem in ("what-deleted-it", "operate"):
        record_deletions(api)
    pods = "/api/v1/namespaces/web/pods"
    for name in ("shop-7d9c-x2x4k", "debug"):
        if api.get(f"{pods}/{name}") is None:
            api.call("POST", pods, {"metadata": {"name": name}, "spec": POD})

    for command in commands_of(page):
        may_fail = command.text.startswith(tuple(MAY_FAIL)) and not command.text.startswith(
            ALL_SUCCEED.get(page.stem, ())
        )
        reader.type(command, exit_codes=(0, 1) if may_fail else (0,))
    reader.leave()


def record_deletions(api: Any) -> None:
    """Write the Events of the journal that a page shows, unless another page had them written."""
    at = datetime.now(UTC) - timedelta(minutes=12)
    times: dict[str, Any] = {"finished_at": at - timedelta(hours=1), "due_at": at, "deleted_at": at}
    one = entry("build-41", **times)
    events = [event_of(one, "expire-7"), event_of_sum(key_of(one), Sum(180, at, at), "expire-7", number=1)]
    path = "/apis/events.k8s.io/v1/namespaces/ci/events"
    for event in events:
        if api.get(f"{path}/{event['metadata']['name']}") is None:
            api.call("POST", path, event)
