"""What the guards of all kinds are asked about: each fixture, and the requests of our accounts about it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

from shared.core.archive.draft import merged
from shared.core.kinds.rule import KindRule
from shared.core.kinds.ttl_and_deadline import Action
from shared.installation.guards import can_stop, guard, stop_guard, usernames
from shared.usecases.reports import patch_of
from tests.admission_policies import Request, Verdict
from tests.builders import NOW, kind_cases, kind_rules, not_none
from tests.crds import BUILT_IN

NAMESPACE = "ttl-system"
EXPIRE, ENFORCE, SWEEP, STANDALONE = usernames(NAMESPACE)
DOMAIN = "ttlafterfinished.dev"
HOLD, EXEMPT, ACTIVE_DEADLINE = f"{DOMAIN}/hold", f"{DOMAIN}/exempt", f"{DOMAIN}/active-deadline"
ON_DEADLINE, PENDING_DEADLINE = f"{DOMAIN}/on-deadline", f"{DOMAIN}/pending-deadline"
MARK, STOPS, STOPPED = f"{DOMAIN}/deadline-exceeded", f"{DOMAIN}/stops", f"{DOMAIN}/stopped-generation"
WORK = {"metadata": {"name": "work"}}
"""The Namespace of all objects that are not cluster-scoped."""

_OF_STOP = (MARK, STOPS, STOPPED)
_DOUBLE = "double.example"
_AT = {MARK: "2099-01-02T03:40:00Z", STOPPED: "1"}
MARKS: tuple[dict[str, str], ...] = (
    {},
    _AT,
    {MARK: _AT[MARK]},
    _AT | {STOPPED: "2"},
    _AT | {STOPPED: ""},
    _AT | {MARK: "2020-01-02T03:40:00Z"},
    _AT | {MARK: "2099-01-02T03:40:00.123456Z", STOPS: "3"},
    *(_AT | {MARK: at} for at in ("", "soon", "2099-13-45T03:40:00Z", "2099-01-02T25:40:00Z")),
    {STOPS: "1"},
    *(_AT | {STOPS: stops} for stops in ("", "0", "000", "-1", "1.0", "002", "999999", "1000000", "one")),
)
"""Annotations of an object of generation 1: marks of a stop, and what is none."""

Object = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A fixture: an object, and whether it has finished; None if that is unknown."""

    name: str
    rule: KindRule
    obj: Object
    finished: bool | None

    @property
    def has_stop(self) -> bool:
        """Whether objects of its rule are stopped by a patch."""
        return can_stop([self.rule])

    @property
    def is_marked(self) -> bool:
        """Whether `enforce` has stopped it."""
        return MARK in self.obj["metadata"].get("annotations", {})


def rules_by_kind() -> dict[str, list[KindRule]]:
    """All kinds that finish, by name; the same rule for a double of each kind that is built in."""
    kinds: dict[str, list[KindRule]] = {}
    for rule in kind_rules().values():
        if not rule.never_finishes:
            kinds.setdefault(rule.name, []).append(rule)
            if rule.group in BUILT_IN:
                double = double_of(rule)
                kinds.setdefault(double.name, []).append(double)
    return kinds


def double_of(rule: KindRule) -> KindRule:
    """The rule for a kind of the same shape without validation: a real Job or Pod does not take every status."""
    return rule.model_copy(update={"api_versions": (f"{_DOUBLE}/v1",)}) if rule.group in BUILT_IN else rule


def cases() -> list[Case]:
    """All fixtures of the kinds that finish."""
    return [
        Case(case["name"], rule, case["object"], case["expect"]["finished"])
        for file, rule in kind_rules().items()
        for case in kind_cases()[file]
        if not rule.never_finishes
    ]


def doubles() -> list[Case]:
    """The fixtures as a real API server takes them: those of the kinds that are built in are of the double."""
    return [case if (rule := double_of(case.rule)) is case.rule else _double_of(case, rule) for case in cases()]


def _double_of(case: Case, rule: KindRule) -> Case:
    return replace(case, rule=rule, obj={**case.obj, "apiVersion": rule.api_version})


def by_kind(found: Iterable[Case]) -> dict[str, list[Case]]:
    """Fixtures by the name of their kind."""
    kinds: dict[str, list[Case]] = {}
    for case in found:
        kinds.setdefault(case.rule.name, []).append(case)
    return kinds


def few_of(of_kind: list[Case]) -> list[Case]:
    """For each rule of a kind one fixture that runs, one that finished, and one that `enforce` stopped, if there is."""
    few = {(case.rule.api_version, case.finished, case.is_marked): case for case in reversed(of_kind)}
    wanted = ((False, False), (True, False), (True, True))
    return [case for (_, *what), case in few.items() if tuple(what) in wanted]


@cache
def policies() -> Mapping[str, tuple[Object, Object | None]]:
    """The delete guard and the stop guard of each kind, by its name."""
    return {
        name: (guard(rules, NAMESPACE)[0], stop_guard(rules, NAMESPACE)[0] if can_stop(rules) else None)
        for name, rules in rules_by_kind().items()
    }


def delete_guard_of(rule: KindRule) -> Object:
    return policies()[rule.name][0]


def stop_guard_of(rule: KindRule) -> Object:
    return not_none(policies()[rule.name][1])


def marked(obj: Object, mark: Mapping[str, str]) -> Object:
    """The object with these annotations of a stop, and no others of a stop."""
    annotations = {key: text for key, text in obj["metadata"]["annotations"].items() if key not in _OF_STOP}
    return {**obj, "metadata": {**obj["metadata"], "annotations": {**annotations, **mark}}}


def stored(obj: Object) -> Object:
    """The object with the metadata that each stored object has."""
    created_at = "2026-01-01T00:00:00Z"
    metadata = {"uid": "3f0d", "resourceVersion": "7", "generation": 1, "creationTimestamp": created_at}
    return {**obj, "metadata": {**metadata, **obj["metadata"]}}


def deletion(rule: KindRule, obj: Object, username: str = EXPIRE, **fields: Any) -> Request:
    """The DELETE of a stored object as our code sends it, with other fields of the request."""
    preconditions = {key: obj["metadata"][key] for key in ("uid", "resourceVersion")}
    options = {"preconditions": preconditions, "propagationPolicy": "Background"}
    request = {"old_object": obj, "options": options, **_about(rule, obj), **fields}
    return Request("DELETE", _resource(rule, obj), username, **request)


def change(rule: KindRule, obj: Object, patch: Object, username: str = ENFORCE, **fields: Any) -> Request:
    """The change of a stored object by a merge patch; the server counts the change."""
    after = merged(obj, patch)
    after["metadata"] = {**after["metadata"], "generation": obj["metadata"]["generation"] + 1}
    request = {"object": after, "old_object": obj, **_about(rule, obj), **fields}
    return Request("UPDATE", _resource(rule, obj), username, **request)


def stop_of(rule: KindRule, obj: Object, *, at: datetime = NOW, action: Action = "stop") -> Object:
    """The patch that stops or suspends a stored object; without the preconditions, which the API server checks."""
    deadline = not_none(rule.deadline)
    return patch_of(not_none(deadline.find_stop(action)), obj, at=at, before=None)


def described(case: Case, verdict: Verdict) -> str:
    return f"{case.rule.name}: {case.name}: {verdict}"


def not_admitted(found: Iterable[tuple[Case, Verdict]]) -> list[str]:
    """The fixtures that are refused."""
    return [described(case, verdict) for case, verdict in found if not verdict.is_admitted]


def not_refused(found: Iterable[tuple[Case, Verdict]], why: str) -> list[str]:
    """The fixtures that are not refused by the validation whose message starts with this word."""
    return [described(case, verdict) for case, verdict in found if not verdict.message.startswith(f"{why}: ")]


def _about(rule: KindRule, obj: Object) -> Object:
    return {"name": obj["metadata"]["name"], "namespace": WORK if rule.scope == "Namespaced" else None}


def _resource(rule: KindRule, obj: Object) -> tuple[str, str, str]:
    group, _, version = obj["apiVersion"].rpartition("/")
    return group, version, rule.plural
