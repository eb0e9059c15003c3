"""All variants of each object, as kustomize makes them: kustomize alone composes, and the chart asks it."""

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, count
from pathlib import Path

import yaml

from tests.chart.conditions import Combination, Term
from tests.chart.kustomizations import (
    GENERATED,
    HASHED,
    RELEASE,
    STANDALONE,
    Identity,
    changing,
    components,
    identity,
    influences,
    owners,
)
from tests.chart.text import IMAGE, NAMESPACE, VERSION
from tests.chart.variants import ABSENT, Variants
from tests.kubectl import kustomize
from tests.manifests.test_manifests import KNATIVE, Object

EXCLUSIVE = (
    frozenset({"timers-nats", "timers-sqlite"}),
    frozenset({STANDALONE, "timers-nats"}),
    frozenset({STANDALONE, "timers-sqlite"}),
)
"""Components that kustomize refuses together; `standalone` comes without the base."""
_AT_ONCE = 2
_NAMESPACES = re.compile(
    r'(namespace: |serviceaccount:|NAMESPACE=|-namespace=|kubectl -n |namespace=\\"|cluster\.local/|/broker/)'
    r"ttl-after-finished\b(?!-)"
)
_RELEASE = {r"newTag: .*": f"newName: {IMAGE}", r"(app\.kubernetes\.io/version): .*": rf"\1: {VERSION}"}


def all_variants() -> dict[Identity, Variants]:
    """For each object, what it is with each combination of the components that change it."""
    wanted = {one: influences(one) for one in owners()}
    made: dict[Identity, dict[Combination, object]] = {one: {} for one in wanted}
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(_AT_ONCE) as pool:
        tree = _Tree(Path(name))
        plan = _packed(wanted.values())
        for on, objects in zip(plan, pool.map(tree.build, plan), strict=True):
            for one, names in wanted.items():
                if names:
                    made[one].setdefault(on & frozenset(names), objects.get(one, ABSENT))
        for one, obj in tree.build(frozenset(), whole=True).items():
            if not wanted[one]:
                made[one][frozenset()] = obj
    return dict(made)


class _Tree:
    """A copy of knative/ in which the namespace, the image and the version are texts that are found again."""

    def __init__(self, folder: Path) -> None:
        self._knative = folder / "knative"
        self._number = count()
        self._changed = {name for one, names in owners().items() if influences(one) for name in names}
        shutil.copytree(KNATIVE, self._knative, ignore=shutil.ignore_patterns("chart"))
        for path in self._knative.rglob("*"):
            if path.suffix in {".yaml", ".json"}:
                path.write_text(_NAMESPACES.sub(rf"\1{NAMESPACE}", path.read_text()))
        release = self._knative / "components" / RELEASE / "kustomization.yaml"
        for found, put in _RELEASE.items():
            release.write_text(re.sub(found, put, release.read_text()))

    def build(self, on: Combination, *, whole: bool = False) -> dict[Identity, Object]:
        """The objects of the base with the components that are on, and those that only add what others change.

        With `whole`, also with those that only add what no other changes.
        """
        added = set(components()) - changing()
        chosen = [name for name in components() if name in on | (added if whole else added & self._changed)]
        overlay = self._knative / f"overlay-{next(self._number)}"
        overlay.mkdir()
        body = {
            "resources": ["../base"],
            "components": [f"../components/{name}" for name in (*chosen, RELEASE) if name != "usage-rights"],
            "configMapGenerator": [
                {"name": GENERATED[name], "namespace": NAMESPACE, "literals": [f"data=data-of-{GENERATED[name]}"]}
                for name in chosen
                if name in GENERATED
            ],
        }
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(body))
        objects = yaml.load_all(HASHED.sub(r"name-of-\1", kustomize(overlay)), Loader=yaml.CSafeLoader)
        return {identity(obj): obj for obj in objects}


def _packed(wanted: Iterable[list[str]]) -> list[Combination]:
    """As few combinations of all components as the greedy choice finds, which cover those of each list of names."""
    plan: list[dict[str, bool]] = []
    for names in sorted(map(tuple, wanted), key=len, reverse=True):
        for on in _combinations(names):
            term = {name: name in on for name in names}
            fitting = next((one for one in plan if _fits(one, term)), None)
            if fitting is None:
                plan.append(term)
            else:
                fitting.update(term)
    return [_on(term) for term in plan]


def _combinations(names: Iterable[str]) -> Iterator[Combination]:
    names = list(names)
    every = (frozenset(some) for size in range(len(names) + 1) for some in combinations(names, size))
    return (on for on in every if _is_valid(on))


def _fits(one: Term, other: Term) -> bool:
    agree = all(one[name] == other[name] for name in one.keys() & other.keys())
    return agree and _is_valid(_on({**one, **other}))


def _on(term: Mapping[str, bool]) -> Combination:
    return frozenset(name for name, on in term.items() if on)


def _is_valid(on: Combination) -> bool:
    return not any(pair <= on for pair in EXCLUSIVE)
