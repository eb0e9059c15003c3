"""PolicyReports and ClusterPolicyReports of wgpolicyk8s.io/v1alpha2 on the API server."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from shared.adapters.kubernetes.bodies import METADATA_LIST
from shared.adapters.kubernetes.requests import ApiServer
from shared.core.values.objects import ANNOTATION_DOMAIN, get_annotations, get_text, list_mappings, ref_of
from shared.errors import AbsentKindError
from shared.ports.telemetry import AuditReport, WrittenReport

NAME = "ttl-after-finished"
"""The name of each report: the roles of `components/audit-reports` allow changes of no other."""

DIGEST = "report-digest"
"""The annotation with the digest of the contents."""

_GROUP_VERSION = "wgpolicyk8s.io/v1alpha2"
_LABELS = {"app.kubernetes.io/managed-by": "ttl-after-finished"}
_SELECTOR = quote(",".join(f"{name}={value}" for name, value in _LABELS.items()))
_PAGE = 500


class KubernetesPolicyReports:
    """Implements `shared.ports.telemetry.PolicyReports`.

    Args:
        server: The API server.
        namespace: The only namespace of this process; empty for all, and for cluster-scoped objects.
    """

    def __init__(self, server: ApiServer, namespace: str = "") -> None:
        self._server, self._namespace = server, namespace
        self._plurals: set[str] = set()

    async def list_written(self) -> Mapping[str, WrittenReport] | None:
        """See `shared.ports.telemetry.PolicyReports`."""
        wanted = {"policyreports"} if self._namespace else {"policyreports", "clusterpolicyreports"}
        written: dict[str, WrittenReport] = {}
        self._plurals = wanted & await self._served()
        for plural in sorted(self._plurals):
            await self._list(plural, written)
        return written if self._plurals else None

    async def _served(self) -> set[str]:
        """The plurals that the cluster has; each account may ask. A LIST without the CRDs would be refused."""
        try:
            answer = await self._server.request("GET", f"/apis/{_GROUP_VERSION}", missing_ok=True)
        except AbsentKindError:
            return set()
        return {get_text(one, "name") for one in list_mappings(answer.body if answer else {}, "resources")}

    async def _list(self, plural: str, written: dict[str, WrittenReport]) -> None:
        token = ""
        while True:
            query = f"labelSelector={_SELECTOR}&limit={_PAGE}" + (f"&continue={quote(token)}" if token else "")
            path = f"{_collection(plural, self._namespace)}?{query}"
            answer = await self._server.request("GET", path, accept=METADATA_LIST, missing_ok=True)
            body = answer.body if answer else {}
            for one in list_mappings(body, "items"):
                ref = ref_of(one)
                if ref.name == NAME:
                    digest = get_annotations(one).get(DIGEST)
                    version = get_text(one, "metadata.resourceVersion")
                    written[ref.namespace] = WrittenReport(ref, version, digest if isinstance(digest, str) else "")
            token = get_text(body, "metadata.continue")
            if not token:
                return

    async def write(self, report: AuditReport, written: WrittenReport | None) -> bool:
        """See `shared.ports.telemetry.PolicyReports`."""
        plural = _plural(report.namespace)
        body = body_of(report)
        is_same = written is not None and written.digest == get_annotations(body)[DIGEST]
        if plural not in self._plurals or is_same:
            return False
        collection = _collection(plural, report.namespace)
        if written is None:
            await self._server.request("POST", collection, body=body)
            return True
        metadata = {**body["metadata"], "resourceVersion": written.resource_version, "uid": written.ref.uid}
        await self._server.request("PUT", f"{collection}/{NAME}", body={**body, "metadata": metadata})
        return True

    async def remove(self, written: WrittenReport) -> None:
        """See `shared.ports.telemetry.PolicyReports`."""
        path = f"{_collection(_plural(written.ref.namespace), written.ref.namespace)}/{NAME}"
        preconditions = {"uid": written.ref.uid, "resourceVersion": written.resource_version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        await self._server.request("DELETE", path, body=body, missing_ok=True)


def body_of(report: AuditReport) -> dict[str, Any]:
    """The PolicyReport, or the ClusterPolicyReport, of a namespace."""
    summary = {"pass": 0, "fail": 0, "warn": report.count, "error": report.failed, "skip": 0}
    contents = {"summary": summary, "results": [*report.results]}
    digest = hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
    metadata: dict[str, Any] = {
        "name": NAME,
        "labels": _LABELS,
        "annotations": {f"{ANNOTATION_DOMAIN}/{DIGEST}": digest},
    }
    if report.namespace:
        metadata["namespace"] = report.namespace
    kind = "PolicyReport" if report.namespace else "ClusterPolicyReport"
    return {"apiVersion": _GROUP_VERSION, "kind": kind, "metadata": metadata, **contents}


def _plural(namespace: str) -> str:
    return "policyreports" if namespace else "clusterpolicyreports"


def _collection(plural: str, namespace: str) -> str:
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"/apis/{_GROUP_VERSION}{place}/{plural}"
