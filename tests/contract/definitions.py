"""CustomResourceDefinitions of a group that only one test knows, as they are installed, upgraded and removed."""

from typing import Any

from shared.core.kinds.rule import KindRule
from tests.builders import JOB

SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Crds:
    """CRDs of a group that only this test knows."""

    def __init__(self, api):
        self.api = api
        self.group = f"{api.namespace}.example.dev"
        self.installed = {}  # versions by plural

    async def install(self, kind, plural, *versions, scope="Namespaced"):
        served = [{"name": name, "served": True, "storage": name == versions[0], "schema": SCHEMA} for name in versions]
        names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
        body: dict[str, Any] = {"metadata": {"name": f"{plural}.{self.group}"}}
        body["spec"] = {"group": self.group, "scope": scope, "names": names, "versions": served}
        answer = await self.api.post(DEFINITIONS, body)
        assert answer.status == 201, answer
        self.installed[plural] = versions
        for name in versions:
            await self.api.becomes(f"/apis/{self.group}/{name}/{plural}", lambda a: a.status == 200)
            await self.discovered(name, plural)

    async def unserve(self, plural, version):
        path = f"{DEFINITIONS}/{plural}.{self.group}"
        versions = (await self.api.get(path)).body["spec"]["versions"]
        changed = [{**one, "served": one["served"] and one["name"] != version} for one in versions]
        assert (await self.api.patch(path, {"spec": {"versions": changed}})).status == 200
        await self.api.becomes(f"/apis/{self.group}/{version}/{plural}", lambda a: a.status == 404)
        await self.api.becomes(f"/apis/{self.group}", lambda a: not offers(a, version))

    async def remove(self, plural):
        await self.api.delete(f"{DEFINITIONS}/{plural}.{self.group}")
        for version in self.installed.pop(plural):
            await self.api.becomes(f"/apis/{self.group}/{version}", lambda a: plural not in plurals(a))

    async def discovered(self, version, plural):
        """Discovery follows a CRD a little later."""
        path = f"/apis/{self.group}/{version}"
        await self.api.becomes(path, lambda a: plural in plurals(a))
        await self.api.becomes(f"/apis/{self.group}", lambda a: offers(a, version))
        await self.api.becomes("/apis", lambda a: self.group in [one["name"] for one in a.body["groups"]])

    def rule(self, kind, plural, *versions, scope="Namespaced"):
        served = tuple(f"{self.group}/{version}" for version in versions)
        update = {"api_versions": served, "kind": kind, "plural": plural, "scope": scope}
        return JOB.model_copy(update=update)

    async def create(self, version, plural, kind, name="one", *, namespace=True, **more):
        path = self.api.path(plural, group=self.group, version=version)
        path = path if namespace else f"/apis/{self.group}/{version}/{plural}"
        body = {"apiVersion": f"{self.group}/{version}", "kind": kind, "metadata": {"name": name}, **more}
        answer = await self.api.post(path, body)
        assert answer.status == 201, answer
        return answer.body


def plurals(answer):
    return [one["name"] for one in answer.body["resources"]] if answer.status == 200 else []


def offers(answer, version):
    return answer.status == 200 and version in [one["version"] for one in answer.body["versions"]]


def reported(rule: KindRule):
    return rule.api_version.rpartition("/")[2], rule.plural, rule.scope
