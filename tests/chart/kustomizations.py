"""What knative/ says: its components in their order, what each of them adds, and what each of them changes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.manifests.test_manifests import COMPONENTS, KNATIVE, Object

STANDALONE = "standalone"
RELEASE = "release"
BASE = "base"
NAMESPACE_FOLDER = "namespace"
GENERATED = {"kinds": "kinds", "policy": "policy", "usage-references": "references"}
"""Components that want a ConfigMap of the overlay, and its name."""
LAST = (
    "archive/credentials",
    "archive/folder",
    *GENERATED,
    "usage-by-namespace",
    "proofs",
    "prometheus",
    "high-availability",
    "high-availability/standalone",
    "network-policy",
    "eventpolicy",
)
"""The end of an overlay's components, as docs/explanation/overlays.md has it; `release` comes after them."""

Identity = tuple[str, str, str]
"""Group, kind and name; the name of a generated ConfigMap without its hash."""

HASHED = re.compile(r"\b(settings|kinds|policy|references)-[2456789bcdfghkmt]{10}\b")


@cache
def components() -> tuple[str, ...]:
    """All components but `release`, in the order of an overlay."""
    names = {name.removeprefix("components/") for name in COMPONENTS} - {RELEASE}
    return (*sorted(names - set(LAST)), *(name for name in LAST if name in names))


def selectable() -> list[str]:
    """The components that a value turns on or off; files of the user turn the others on."""
    return [name for name in components() if name not in GENERATED]


def identity(obj: Object) -> Identity:
    """What tells an object from all others."""
    name = obj["metadata"]["name"].removeprefix("name-of-")
    return obj["apiVersion"].rpartition("/")[0], obj["kind"], HASHED.sub(r"\1", name)


@dataclass(frozen=True)
class Target:
    """The objects that a patch changes, as kustomize selects them; an empty text selects all."""

    group: str = ""
    kind: str = ""
    name: str = ""

    def matches(self, one: Identity) -> bool:
        """Whether the patch changes an object."""
        wanted = (self.group, self.kind, self.name)
        return all(not want or re.fullmatch(want, found) for want, found in zip(wanted, one, strict=True))


@dataclass(frozen=True)
class Kustomization:
    """One folder of knative/."""

    folder: Path

    @property
    def _body(self) -> Any:
        return yaml.safe_load((self.folder / "kustomization.yaml").read_text())

    @property
    def about(self) -> str:
        """The comment at its top, as one line."""
        lines = (self.folder / "kustomization.yaml").read_text().splitlines()
        comment = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
        return " ".join(comment)

    @property
    def purpose(self) -> str:
        """The first sentence of this comment, without its full stop."""
        return self.about.partition(". ")[0].removesuffix(".")

    def adds(self) -> Iterator[Identity]:
        """The objects that it adds, by itself or by a component that it lists."""
        for name in self._body.get("resources", []):
            path = self.folder / name
            if path.is_file():
                yield from (identity(obj) for obj in yaml.safe_load_all(path.read_text()) if obj)
        for one in self._body.get("configMapGenerator", []):
            if one.get("behavior") != "merge":
                yield "", "ConfigMap", one["name"]
        for name in self._body.get("components", []):
            if Path(name).name != RELEASE:
                yield from Kustomization((self.folder / name).resolve()).adds()

    def changes(self) -> Iterator[Target]:
        """What it changes of the objects of others."""
        for patch in self._body.get("patches", []):
            if "target" in patch:
                yield Target(**{key: patch["target"].get(key, "") for key in ("group", "kind", "name")})
            else:
                text = patch["patch"] if "patch" in patch else (self.folder / patch["path"]).read_text()
                yield Target(*identity(yaml.safe_load(text)))
        for one in self._body.get("configMapGenerator", []):
            if one.get("behavior") == "merge":
                yield Target("", "ConfigMap", one["name"])


def component(name: str) -> Kustomization:
    """One folder of components/."""
    return Kustomization(KNATIVE / "components" / name)


@cache
def owners() -> dict[Identity, list[str]]:
    """For each object, what adds it: `base`, `namespace` or components."""
    found: dict[Identity, list[str]] = {}
    folders = {name: Kustomization(KNATIVE / name) for name in (NAMESPACE_FOLDER, BASE)}
    for name, one in {**folders, **{name: component(name) for name in components()}}.items():
        for added in one.adds():
            found.setdefault(added, []).append(name)
    for name, generated in GENERATED.items():
        found["", "ConfigMap", generated] = [name]
    return found


@cache
def changing() -> frozenset[str]:
    """The components that change objects of others."""
    return frozenset(name for name, targets in _targets().items() if targets)


def influences(one: Identity) -> list[str]:
    """The components on which an object depends, of those that are `changing`, in their order."""
    added = owners()[one]
    return [
        name
        for name, targets in _targets().items()
        if any(target.matches(one) for target in targets) or (targets and name in added)
    ]


@cache
def _targets() -> dict[str, list[Target]]:
    return {name: list(component(name).changes()) for name in components()}
