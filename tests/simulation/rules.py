"""Policies as their authors mean them, beside the text of their files; nothing here is shared with the system."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

from tests.simulation.sim_object import NEVER, SimObject

Test = Callable[[SimObject], bool | None]
"""Whether a rule matches an object; None where that is unknown."""

Group = Callable[[SimObject], Any]
"""In which of a rule's groups an object is counted."""

UNREADABLE = "unreadable"
"""In place of a group that is unknown."""

_PLURALS = {"Job": "jobs", "Pod": "pods", "TrainJob": "trainjobs.trainer.kubeflow.org"}
_SECONDS = (0, 0, 1, 5, 20, 60, 120, 240, 400)
_SOME = (5, 20, 60, 150, 300)
_TEAM = "object.metadata.labels.team"
_WHENS: tuple[tuple[str, Test], ...] = (
    (f"{_TEAM} == 'a'", lambda obj: obj.labels["team"] == "a" if "team" in obj.labels else None),
    ("outcome == 'failed'", lambda obj: obj.failed),
    ("namespaceObject.metadata.name == 'default'", lambda obj: obj.namespace == "default"),
    ("object.metadata.name.endsWith('3')", lambda obj: obj.name.endswith("3")),
)
_NOT_A = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}
_MATCHES: tuple[tuple[str, Any, Test], ...] = (
    ("namespaces", {"names": ["default"]}, lambda obj: obj.namespace == "default"),
    ("namespaces", {"names": ["kube-*"]}, lambda obj: fnmatchcase(obj.namespace, "kube-*")),
    ("namespaces", {"except": ["kube-*"]}, lambda obj: not fnmatchcase(obj.namespace, "kube-*")),
    ("labels", {"matchLabels": {"team": "a"}}, lambda obj: obj.labels.get("team") == "a"),
    ("labels", _NOT_A, lambda obj: obj.labels.get("team") != "a"),
    ("owners", [], lambda obj: not obj.owner),
    ("owners", [{"kind": "*"}], lambda obj: bool(obj.owner)),
)
_GROUPS: tuple[tuple[Any, Group], ...] = (
    ("namespace", lambda _: ""),
    ("owner", lambda obj: obj.owner),
    ({"label": "team"}, lambda obj: obj.labels.get("team")),
    ({"cel": "outcome"}, lambda obj: obj.failed),
    ({"cel": _TEAM}, lambda obj: obj.labels.get("team", UNREADABLE)),
)
_HEAD = {"apiVersion": "ttlafterfinished.dev/v1", "kind": "Policy"}
_BAD = (
    "",
    "rules: {",
    json.dumps({**_HEAD, "rules": [{"name": "x", "match": {"kinds": ["cabbages"]}, "ttl": "0s"}]}),
    json.dumps({**_HEAD, "rules": [{"name": "x", "match": {"kinds": ["jobs"]}, "ttl": "soon"}]}),
    json.dumps({**_HEAD, "rules": [{"name": "x", "match": {"kinds": ["pods"]}, "ttl": "0s", "keepLast": 0}]}),
)


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        said: As the file says it.
        kinds: Which it is about.
        tests: What must hold of an object beside its kind.
        age: From its creation on it speaks.
        ttls: How long, by whether the object failed; nothing where it does not say.
        kept: How many stay, by whether the object failed.
        apart: Whether each outcome is counted apart.
        deletes_owned: Whether an owner that works keeps nothing.
        most: How many of a group may stay; None for any number.
        most_group: In which group an object is counted for that.
        room: How many of a kind may stay in a namespace by its quota; None for any number.
        not_before: How long an object stays in spite of that.
    """

    name: str
    said: dict[str, Any]
    kinds: frozenset[str]
    tests: tuple[Test, ...] = ()
    age: timedelta | None = None
    ttls: dict[bool, timedelta | str] = field(default_factory=dict)
    kept: dict[bool, int] = field(default_factory=dict)
    apart: bool = True
    group: Group = _GROUPS[0][1]
    min_age: timedelta | None = None
    deletes_owned: bool = False
    jitter: timedelta = timedelta(0)
    most: int | None = None
    most_group: Group = _GROUPS[0][1]
    room: int | None = None
    not_before: timedelta = timedelta(0)


@dataclass(frozen=True, eq=False)
class Policy:
    """What one file held; what a bad one means is unknown."""

    text: str
    rules: tuple[Rule, ...] = ()
    is_good: bool = True


def draw_policy(rng: random.Random, *, only_max_count: bool = False) -> Policy:
    """A good one.

    Args:
        rng: What draws it.
        only_max_count: Whether its rules delete what is above their `maxCount`, and nothing else.
    """
    draw = _draw_count if only_max_count else _draw_rule
    rules = tuple(draw(rng, f"rule-{number}") for number in range(rng.choice((1, 2, 2, 3, 4))))
    return Policy(json.dumps({**_HEAD, "rules": [rule.said for rule in rules]}), rules)


def draw_bad(rng: random.Random) -> Policy:
    """One that no process may act on."""
    return Policy(rng.choice(_BAD), is_good=False)


def _draw_kinds(rng: random.Random, name: str) -> Rule:
    chosen = frozenset(_PLURALS) if rng.random() < 0.6 else frozenset(rng.sample(sorted(_PLURALS), rng.choice((1, 2))))
    kinds = ["*"] if len(chosen) == len(_PLURALS) else [_PLURALS[kind] for kind in sorted(chosen)]
    return Rule(name, {"name": name, "match": {"kinds": kinds}}, chosen)


def _draw_count(rng: random.Random, name: str) -> Rule:
    return _draw_most(rng, _draw_match(rng, _draw_kinds(rng, name)))


def _draw_rule(rng: random.Random, name: str) -> Rule:
    rule = _draw_match(rng, _draw_kinds(rng, name))
    speaks = rng.random() < 0.75
    guards = rng.choice(("age", "number", "both")) if not speaks else rng.choice(("", "", "age", "number", "number"))
    if speaks:
        rule = _draw_ttl(rng, rule)
    if guards in ("age", "both"):
        seconds = rng.choice(_SOME)
        rule = replace(rule, said={**rule.said, "minAge": seconds}, min_age=timedelta(seconds=seconds))
    rule = _draw_kept(rng, rule) if guards in ("number", "both") else rule
    rule = _draw_most(rng, rule) if rng.random() < 0.25 else rule
    return _draw_room(rng, rule) if rng.random() < 0.45 else rule


def _draw_match(rng: random.Random, rule: Rule) -> Rule:
    said, match, tests, age = rule.said, rule.said["match"], list(rule.tests), None
    for place, words, test in rng.sample(_MATCHES, rng.choice((0, 0, 0, 1, 1, 2))):
        if place not in match:
            match = {**match, place: words}
            tests.append(test)
    if rng.random() < 0.3:
        seconds = rng.choice(_SOME)
        match, age = {**match, "age": f"{seconds}s"}, timedelta(seconds=seconds)
    if rng.random() < 0.2:
        text, test = rng.choice(_WHENS)
        said = {**said, "when": text}
        tests.append(test)  # the last, since what does not match before need not be readable
    return replace(rule, said={**said, "match": match}, tests=tuple(tests), age=age)


def _draw_ttl(rng: random.Random, rule: Rule) -> Rule:
    said: Any
    first, second = ({"said": NEVER, "after": NEVER} if rng.random() < 0.08 else _draw_after(rng) for _ in range(2))
    if rng.random() < 0.6:
        said, ttls = first["said"], {False: first["after"], True: first["after"]}
    else:
        said, ttls = (
            {"succeeded": first["said"], "failed": second["said"]},
            {False: first["after"], True: second["after"]},
        )
        if rng.random() < 0.4:
            failed = rng.random() < 0.5
            said, ttls = (
                {"failed" if failed else "succeeded": (second if failed else first)["said"]},
                {failed: ttls[failed]},
            )
    more: dict[str, Any] = {"ttl": said}
    if (roll := rng.random()) < 0.5:
        more["onOwned"] = "delete" if roll < 0.35 else "keep"
    jitter = rng.choice((0, 0, 0, 30, 200))
    if jitter:
        more["jitter"] = jitter
    deletes_owned = more.get("onOwned") == "delete"
    return replace(
        rule, said=rule.said | more, ttls=ttls, deletes_owned=deletes_owned, jitter=timedelta(seconds=jitter)
    )


def _draw_after(rng: random.Random) -> dict[str, Any]:
    seconds = rng.choice(_SECONDS)
    return {"said": rng.choice((seconds, str(seconds), f"{seconds}s")), "after": timedelta(seconds=seconds)}


def _draw_kept(rng: random.Random, rule: Rule) -> Rule:
    all_of_them, failed = rng.choice(((2, None), (1, None), (3, 1), (1, 2), (None, 1), (None, 2)))
    together = failed is None and rng.random() < 0.4
    more = {"keepLast": all_of_them, "keepLastFailed": failed, "keepLastOutcomes": "together" if together else None}
    kept = {False: all_of_them, True: failed or all_of_them}
    said, group = rng.choice(_GROUPS)
    return replace(
        rule,
        said=rule.said | {name: many for name, many in more.items() if many} | {"keepLastBy": said},
        kept={outcome: many for outcome, many in kept.items() if many},
        apart=not together,
        group=group,
    )


def _draw_most(rng: random.Random, rule: Rule) -> Rule:
    most = max(rng.choice((1, 2, 3)), *rule.kept.values(), 1)
    said, group = rng.choice(_GROUPS)
    return replace(rule, said=rule.said | {"maxCount": most, "countBy": said}, most=most, most_group=group)


def _draw_room(rng: random.Random, rule: Rule) -> Rule:
    room, seconds = rng.choice(((13, 1), (13, 1), (25, 2))), rng.choice((0, 0, 5, 60))
    more = {"whenQuotaAbove": f"{room[0]}%", "notBefore": f"{seconds}s"}
    return replace(rule, said=rule.said | more, room=room[1], not_before=timedelta(seconds=seconds))
