"""A rule of a policy: the objects that it matches, the TTL that it sets, and the limits that it adds.

Its fields have to go together. The fields of the whole file, with an example of each, are in shared.core.policy.policy.
"""

import re
from datetime import timedelta
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic import model_validator as checked

from shared.core.deadlines.deadline import Deadline, Stage
from shared.core.kinds.predicates import RuleModel
from shared.core.kinds.rule import Outcome
from shared.core.kinds.ttl_and_deadline import Action
from shared.core.policy.archives import RuleArchive
from shared.core.policy.matching import NAMESPACE, AnyCondition, AnyDeadline, AnyGrouping, AnyLasting, Duration, Match
from shared.core.policy.usage import RuleUnused, check_unused
from shared.core.ttl.ttl import Ttl
from shared.core.values.objects import quote

_PERCENT = re.compile(r"([1-9][0-9]?)%")


def _read_percent(value: Any) -> int:
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"expected a percentage from 1% to 99%, such as 90%, got {quote(value)}")
    return int(found[1])


Percent = Annotated[
    int,
    BeforeValidator(_read_percent),
    WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]?%$", "description": "A percentage from 1% to 99%."}),
]
"""A field of a policy: a whole percentage from 1% to 99%."""


NOT_BEFORE = timedelta(minutes=10)
"""The default of notBefore."""


class PolicyRule(RuleModel):
    """One rule: what it matches, and what it sets or guards."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        description="The name of the rule, unique in the policy. Logs, Events and commands show it.",
    )
    match: Match = Field(description="The objects that the rule matches.")
    when: AnyCondition | None = Field(
        default=None,
        description="A CEL expression over object, namespaceObject and outcome. The rule matches only if it is true. "
        "If it has no value for an object, the object is kept.",
    )
    ttl: AnyLasting | None = Field(
        default=None,
        description="The TTL: a duration or never, for all outcomes, or for each of succeeded and failed. Of the rules "
        "that match, the first with a ttl for the outcome sets the TTL.",
    )
    keep_last: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="The newest objects of a group that are kept, whatever their TTL is: so many that succeeded, and "
        "so many that failed. Objects of unknown outcome are counted apart from both.",
    )
    keep_last_failed: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="How many failed objects are kept, if not as many as keepLast. Without keepLast, only failed "
        "objects are kept, and objects of unknown outcome unless a later rule with keepLast keeps them.",
    )
    keep_last_outcomes: Literal["apart", "together"] = Field(
        default="apart",
        description="Whether keepLast counts objects of each outcome apart, or all together. The default is apart. "
        "together needs keepLast, and cannot be combined with keepLastFailed.",
    )
    keep_last_by: AnyGrouping = Field(
        default=NAMESPACE,
        description="What makes a group: the owner, the namespace, a label, or a CEL expression. A group has objects "
        "of one kind in one namespace.",
    )
    max_count: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="How many finished objects a group may have. If it has more, the oldest are due at once, with or "
        "without a TTL. A hold, never, keepLast and minAge still keep an object.",
    )
    count_by: AnyGrouping = Field(
        default=NAMESPACE,
        description="What makes a group for maxCount: the same values as for keepLastBy.",
    )
    when_quota_above: Percent | None = Field(
        default=None,
        description="A percentage, such as 90%. While a larger part of a ResourceQuota on count/PLURAL.GROUP is "
        "used, the oldest finished objects of its namespace are due before their TTL is over. Objects without a TTL "
        "are kept.",
    )
    not_before: Duration | None = Field(
        default=None,
        description="The time after its finish during which whenQuotaAbove keeps an object. The default is 10m.",
    )
    min_age: Duration | None = Field(
        default=None,
        description="The time after its finish during which an object is kept, whatever sets its TTL. Of several rules "
        "that match, the largest value counts.",
    )
    propagation: Literal["Background", "Foreground", "Orphan"] | None = Field(
        default=None,
        description="The propagationPolicy of the DELETE. Needs ttl, maxCount, whenQuotaAbove or onDeadline: delete. "
        "The default is that of the kind rule.",
    )
    on_owned: Literal["keep", "delete"] | None = Field(
        default=None,
        description="Whether an object is deleted, or stopped at its deadline, while its controller owner has not "
        "finished. Needs ttl, maxCount, whenQuotaAbove, activeDeadline or pendingDeadline. The default is keep. With "
        "delete, kinds whose rule has whileOwnerUnfinished: keep, such as Pod, are still kept from deletion by a TTL "
        "or a limit, unless the owner is of a kind without a kind rule.",
    )
    on_dispatched: Literal["keep", "delete"] | None = Field(
        default=None,
        description="Whether an object is deleted that another cluster sent here. The default is keep. It cannot be "
        "combined with match.age.",
    )
    on_recreated: Literal["keep", "delete"] | None = Field(
        default=None,
        description="Whether a TTL, limit or deadline of a policy or a namespace deletes an object that a controller, "
        "such as Argo CD or Flux, creates again. The default is keep. Of the rules that match, the first with "
        "onRecreated counts; at a deadline, the rule that sets it. It cannot be combined with match.age.",
    )
    active_deadline: AnyDeadline | None = Field(
        default=None,
        description="How long an unfinished object may run, from its start or its last resume: a duration or never. "
        "Then it is stopped. Of the rules that match, the first with an activeDeadline sets it.",
    )
    pending_deadline: AnyDeadline | None = Field(
        default=None,
        description="How long an object that has never started may wait for its start: a duration or never. Then "
        "onDeadline is done with it. Only kinds whose objects show that they have never started have it: Pods, until "
        "the first container, init containers included, runs. Until then it replaces activeDeadline. Of the rules that "
        "match, the first with a pendingDeadline sets it.",
    )
    on_deadline: Action | None = Field(
        default=None,
        description="What is done at both deadlines. Needs activeDeadline or pendingDeadline. The default is stop. A "
        "Pod without a node cannot be stopped, only deleted. With suspend, an object "
        "of a kind that can be suspended, such as a Job, does not finish, and can be resumed. With delete, the object "
        "is deleted, even if its kind cannot be stopped. The delete guard, if installed, rejects this DELETE by the "
        "installation, unless the object itself has the annotation on-deadline: delete beside the one of the "
        "deadline. It does not bind a run with your own rights.",
    )
    jitter: Duration | None = Field(
        default=None,
        description="The time over which the deletions are spread of objects that a sweep finds overdue. Needs ttl, "
        "maxCount or whenQuotaAbove.",
    )
    archive: RuleArchive | None = Field(
        default=None,
        description="Archives an object before it is deleted, whatever sets its TTL. Of the rules that match, the "
        "first with an archive counts. It cannot be combined with match.age.",
    )
    warn: Duration | None = Field(
        default=None,
        description="How long before an object is due the event object.warned is sent, at least once. Needs a ttl. If "
        "the TTL is shorter, it is sent at once. An object that a limit makes due early is deleted without it.",
    )
    audit: bool = Field(
        default=False,
        strict=True,
        description="Whether objects are only reported. What the rule would have deleted, stopped, archived or marked "
        "is kept, and the rules after it do not apply instead.",
    )
    unused: RuleUnused | None = Field(
        default=None,
        description="Deletes Secrets and ConfigMaps that were used, and to which nothing refers any more, in the "
        "namespaces that opt in. "
        "Of the rules that match, the first with unused counts. Beside it, only archive and audit can be set.",
    )

    @checked(mode="after")
    def _is_consistent(self) -> Self:
        _check_rule(self)
        return self

    @property
    def audits_unused(self) -> bool:
        """Return whether unused objects are only reported."""
        return self.audit or (self.unused is not None and self.unused.audit)

    @property
    def counts(self) -> bool:
        """Return whether it keeps the newest objects of a group."""
        return self.keep_last is not None or self.keep_last_failed is not None

    @property
    def constrains(self) -> bool:
        """Return whether it has a field that applies whichever source sets the TTL."""
        is_about_makers = self.on_dispatched is not None or self.on_recreated is not None
        return self.counts or self.limits or self.min_age is not None or is_about_makers

    @property
    def limits(self) -> bool:
        """Return whether it limits finished objects by their count or by a quota."""
        return self.max_count is not None or self.when_quota_above is not None

    @cached_property
    def count_ttl(self) -> Ttl:
        """The TTL of an object that is above maxCount."""
        return Ttl(f"maxCount of {self.source}", after=timedelta(0), origin="policy")

    @cached_property
    def quota_ttl(self) -> Ttl:
        """The TTL of an object that is due because of a quota."""
        after = NOT_BEFORE if self.not_before is None else self.not_before
        return Ttl(f"whenQuotaAbove of {self.source}", after=after, origin="policy")

    @property
    def source(self) -> str:
        """The rule as messages and TTL sources name it."""
        return f"policy rule {self.name}"

    def counted_as(self, outcome: Outcome | None) -> Outcome | None:
        """With which outcome keepLast counts an object; None if it counts all outcomes together."""
        return None if self.keep_last_outcomes == "together" else outcome or Outcome.UNKNOWN

    def kept_of(self, outcome: Outcome | None) -> int | None:
        """How many of the newest objects are kept in the group of an object with this outcome; None if not limited.

        An object of unknown outcome may have failed or succeeded: the larger number counts.
        """
        if outcome is None:
            return max(self.keep_last or 0, self.keep_last_failed or 0) or None
        if outcome is Outcome.FAILED and self.keep_last_failed is not None:
            return self.keep_last_failed
        return self.keep_last

    @property
    def sets_deadline(self) -> bool:
        """Return whether it sets a deadline, of whichever stage."""
        return bool(self.deadlines)

    @cached_property
    def deadlines(self) -> dict[Stage, Deadline]:
        """The deadlines that it sets, by the stage that they limit."""
        given = {Stage.ACTIVE: self.active_deadline, Stage.PENDING: self.pending_deadline}
        return {
            stage: Deadline(self.source, None if after == "never" else after, "policy")
            for stage, after in given.items()
            if after is not None
        }

    @cached_property
    def ttls(self) -> dict[Outcome | None, Ttl]:
        """The TTLs that it sets, by outcome."""
        by_outcome = self.ttl.by_outcome if self.ttl else ()
        return {outcome: Ttl(self.source, after=after, origin="policy") for outcome, after in by_outcome}


def _check_rule(rule: PolicyRule) -> None:
    """Check one rule.

    Raises:
        ValueError: Two of its fields exclude each other, or a field lacks the one that it needs.
    """
    if rule.unused is not None:
        names = {type(rule).model_fields[name].alias or name for name in rule.model_fields_set}
        check_unused(rule.unused, names, rule.match, rule.archive)
        return
    if rule.ttl is None and not rule.sets_deadline and rule.archive is None and not rule.constrains:
        fields = "ttl, activeDeadline, pendingDeadline, keepLast, keepLastFailed, maxCount, whenQuotaAbove, minAge"
        fields += ", onDispatched, onRecreated, archive and unused"
        raise ValueError(f"expected at least one of {fields}")
    if rule.on_deadline and not rule.sets_deadline:
        raise ValueError("onDeadline: expected an activeDeadline or a pendingDeadline beside it")
    if rule.on_deadline == "delete" and rule.archive is not None:
        raise ValueError("onDeadline: expected stop or suspend beside archive: objects are archived when they finish")
    _check_kept(rule)
    _check_age(rule)
    _check_deletion(rule)
    _check_limits(rule)
    if rule.warn is not None and rule.ttl is None:
        raise ValueError("warn: expected a ttl beside it")
    if rule.audit and rule.ttl is None and not rule.sets_deadline and rule.archive is None and not rule.limits:
        fields = "a ttl, maxCount, whenQuotaAbove, activeDeadline, pendingDeadline or archive"
        raise ValueError(f"audit: expected {fields} beside it")


def _check_kept(rule: PolicyRule) -> None:
    if not rule.counts and rule.keep_last_by.by != "namespace":
        raise ValueError("keepLastBy: expected keepLast or keepLastFailed beside it")
    if rule.keep_last_outcomes == "together" and (rule.keep_last is None or rule.keep_last_failed is not None):
        raise ValueError("keepLastOutcomes: expected keepLast, and no keepLastFailed, beside together")


def _check_age(rule: PolicyRule) -> None:
    if rule.match.age is None:
        return
    if rule.active_deadline is not None:
        raise ValueError("activeDeadline: expected no age in match; the deadline counts from the start")
    if rule.pending_deadline is not None:
        raise ValueError("pendingDeadline: expected no age in match; it limits the age before the start itself")
    if rule.on_dispatched or rule.on_recreated:
        name = "onDispatched" if rule.on_dispatched else "onRecreated"
        raise ValueError(f"{name}: expected no age in match; set minAge to keep such objects for a time")
    if rule.archive is not None:
        raise ValueError("archive: expected no age in match; objects are archived when they finish")


def _check_deletion(rule: PolicyRule) -> None:
    if rule.ttl is not None or rule.limits:
        return
    if rule.on_owned and not rule.sets_deadline:
        fields = "a ttl, maxCount, whenQuotaAbove, activeDeadline or pendingDeadline"
        raise ValueError(f"onOwned: expected {fields} beside it")
    if rule.jitter is not None:
        raise ValueError("jitter: expected a ttl, maxCount or whenQuotaAbove beside it")
    if rule.propagation and rule.on_deadline != "delete":
        raise ValueError("propagation: expected a ttl, maxCount, whenQuotaAbove or onDeadline: delete beside it")


def _check_limits(rule: PolicyRule) -> None:
    kept = max(rule.keep_last or 0, rule.keep_last_failed or 0)
    if rule.max_count is None and rule.count_by.by != "namespace":
        raise ValueError("countBy: expected maxCount beside it")
    if rule.max_count is not None and rule.count_by == rule.keep_last_by and rule.max_count < kept:
        raise ValueError(f"maxCount: expected at least {kept}, which the rule keeps, got {rule.max_count}")
    if rule.not_before is not None and rule.when_quota_above is None:
        raise ValueError("notBefore: expected whenQuotaAbove beside it")
