"""A policy: rules that set TTLs and limits for the finished objects of a whole cluster or fleet.

A policy is one YAML file:

    apiVersion: ttlafterfinished.dev/v1
    kind: Policy
    budget:                          # how much may be deleted, and how fast: see shared.core.policy.limits
      global: {perSecond: 50, burst: 100}
      perNamespace: {perSecond: 10, burst: 20}
      breaker: {count: 1000, share: 50%, atLeast: 100, window: 10m}
    recreation: {times: 5, window: 10m}   # a name deleted so often that exists again is kept for the window
    rules:                           # in order: the first rule that matches and has a ttl sets the TTL
      - name: failed-ci              # unique
        match:                       # all fields that are set must match; kinds is required
          kinds: [jobs, pipelineruns.tekton.dev, "*"]
          namespaces: {names: ["ci-*"], except: ["ci-prod"], selector: SELECTOR}
          labels: SELECTOR           # {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: Exists}]}
          annotations: {example.com/team: "a*"}
          owners: [{kind: CronJob, name: "nightly-*"}]     # any of them; [] matches objects without a controller owner
          age: 7d                    # sets a ttl or a minAge only from the object's creation + this time on
        when: "object.spec.backoffLimit == 0"              # CEL over object, namespaceObject and outcome, not the time
        ttl: 1h                      # or never, or {succeeded: 1h, failed: 7d}
        propagation: Foreground      # propagation, onOwned and jitter need a ttl
        onOwned: delete              # while the controller owner is unfinished; keep is the default
        jitter: 10m                  # the time over which a sweep spreads deletions of overdue objects
        minAge: 10m                  # kept so long after the finish, whichever source sets a shorter TTL
        onDispatched: delete         # if another cluster sent the object here; keep is the default. Not with age
        keepLast: 3                  # the newest objects of a group that are kept, whatever their TTL
        keepLastFailed: 5            # the same for failed objects, which are then counted apart
        keepLastBy: owner            # or namespace (the default), {label: app}, {cel: "..."}; always of one kind

If a field should not limit a rule, leave it out: an empty list or mapping is rejected, except for `owners` and `rules`.

minAge, keepLast, keepLastFailed and onDispatched apply to every object that matches, whichever source sets its TTL. A
rule without a ttl sets only these. If several rules match, the largest minAge counts, the first rule with keepLast or
keepLastFailed counts, and the first rule with onDispatched counts.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, field_validator
from pydantic import model_validator as checked
from pydantic_core import InitErrorDetails, PydanticCustomError

from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.predicates import RuleModel
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.policy.conditions import NAMESPACE, AnyCondition, AnyGrouping
from shared.core.policy.limits import BudgetLimits, Limits, RecreationLimits
from shared.core.policy.matching import Duration, Match, Test, is_glob
from shared.core.policy.outcome_ttl import OUTCOMES, AnyLasting
from shared.core.ttl.ttl import Ttl


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
        description="The newest objects of a group that are kept, whatever their TTL is.",
    )
    keep_last_failed: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="The same for failed objects, which are then counted apart from the others.",
    )
    keep_last_by: AnyGrouping = Field(
        default=NAMESPACE,
        description="What makes a group: the owner, the namespace, a label, or a CEL expression. A group has objects "
        "of one kind in one namespace.",
    )
    min_age: Duration | None = Field(
        default=None,
        description="The time after its finish during which an object is kept, whatever sets its TTL. Of several rules "
        "that match, the largest value counts.",
    )
    propagation: Literal["Background", "Foreground", "Orphan"] | None = Field(
        default=None,
        description="The propagationPolicy of the DELETE. Needs ttl. The default is that of the kind rule.",
    )
    on_owned: Literal["keep", "delete"] | None = Field(
        default=None,
        description="Whether an object is deleted while its controller owner has not finished. Needs ttl. The default "
        "is keep. It does not apply to kinds whose rule has whileOwnerUnfinished: keep, such as Pod.",
    )
    on_dispatched: Literal["keep", "delete"] | None = Field(
        default=None,
        description="Whether an object is deleted that another cluster sent here. The default is keep. It cannot be "
        "combined with match.age.",
    )
    jitter: Duration | None = Field(
        default=None,
        description="The time over which the deletions are spread of objects that a sweep finds overdue. Needs ttl.",
    )

    @checked(mode="after")
    def _is_consistent(self) -> Self:
        if self.ttl is None and not self.constrains:
            raise ValueError("expected at least one of ttl, keepLast, keepLastFailed, minAge and onDispatched")
        if self.on_dispatched and self.match.age is not None:
            raise ValueError("onDispatched: expected no age in match; set minAge to keep such objects for a time")
        if self.ttl is None and (self.propagation or self.on_owned or self.jitter is not None):
            raise ValueError("propagation, onOwned and jitter: expected a ttl beside them")
        if not self.counts and self.keep_last_by.by != "namespace":
            raise ValueError("keepLastBy: expected keepLast or keepLastFailed beside it")
        return self

    @property
    def counts(self) -> bool:
        """Whether it keeps the newest objects of a group."""
        return self.keep_last is not None or self.keep_last_failed is not None

    @property
    def constrains(self) -> bool:
        """Whether it has a field that applies whichever source sets the TTL."""
        return self.counts or self.min_age is not None or self.on_dispatched is not None

    @property
    def source(self) -> str:
        """The rule as messages and TTL sources name it."""
        return f"policy rule {self.name}"

    def counts_apart(self, outcome: Outcome | None) -> bool:
        """Whether an object with this outcome is counted among the failed objects only."""
        return self.keep_last_failed is not None and outcome is Outcome.FAILED

    def kept_of(self, outcome: Outcome | None) -> int | None:
        """How many of the newest objects are kept in the group of an object with this outcome; None if not limited."""
        return self.keep_last_failed if self.counts_apart(outcome) else self.keep_last

    @cached_property
    def ttls(self) -> dict[Outcome | None, Ttl]:
        """The TTLs that it sets, by outcome."""
        by_outcome = self.ttl.by_outcome if self.ttl else ()
        return {outcome: Ttl(self.source, after=after, origin="policy") for outcome, after in by_outcome}


@dataclass(slots=True)
class Candidate:
    """A rule that matches a kind, prepared for many objects of that kind.

    Attributes:
        rule: The rule.
        tests: The tests that an object must pass, except for its age.
        ttls: The TTLs that it sets, by outcome; empty if the kind is opt-in and the rule does not name it.
        kept: How many of the newest objects of a group are kept, by outcome.
        constrains: Whether it has a field that applies whichever source sets the TTL.
    """

    rule: PolicyRule
    tests: tuple[Test, ...]
    ttls: dict[Outcome | None, Ttl]
    kept: dict[Outcome | None, int]
    constrains: bool


class Policy(RuleModel):
    """A policy file."""

    api_version: Literal["ttlafterfinished.dev/v1"] = Field(
        default="ttlafterfinished.dev/v1", description="The version of this schema."
    )
    kind: Literal["Policy"] = Field(default="Policy", description="Always Policy.")
    budget: BudgetLimits = Field(
        default=BudgetLimits.model_construct(),
        description="How much may be deleted, and how fast. Without it there is no limit.",
    )
    recreation: RecreationLimits = Field(
        default=RecreationLimits(), description="When the deletions of one name count as a recreate loop."
    )
    rules: tuple[PolicyRule, ...] = Field(
        default=(),
        max_length=1_000,
        description="The rules, in order. The first rule that matches and has a ttl sets the TTL.",
    )

    @field_validator("rules")
    @classmethod
    def _named_once(cls, rules: tuple[PolicyRule, ...]) -> tuple[PolicyRule, ...]:
        names = [rule.name for rule in rules]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"expected unique names, got {twice!r} twice")
        return rules

    def of_kinds(self, kinds: Catalogue) -> "Policy":
        """The same policy with the full name of every kind, so that a typo or an ambiguous name is an error.

        Args:
            kinds: All known kinds. If a built-in kind shares its name with others, the built-in kind is meant.

        Raises:
            ValidationError: A word names no kind, several kinds, or one that never finishes; a pattern matches none.
        """
        rules, errors = [], []
        for index, rule in enumerate(self.rules):
            names: list[str] = []
            for place, word in enumerate(rule.match.kinds):
                try:
                    names += [word] if is_glob(word) else [one.name for one in kinds.finishing(word)]
                    _check_pattern(word, kinds)
                except ValueError as error:
                    problem = PydanticCustomError("kind", "{problem}", {"problem": str(error)})
                    errors.append(
                        InitErrorDetails(type=problem, loc=("rules", index, "match", "kinds", place), input=word)
                    )
            match = rule.match.model_copy(update={"kinds": tuple(dict.fromkeys(names))})
            rules.append(rule.model_copy(update={"match": match}))
        if errors:
            raise ValidationError.from_exception_data("Policy", errors)
        return self.model_copy(update={"rules": tuple(rules)})

    _digest: str = PrivateAttr("")

    @property
    def digest(self) -> str:
        """The first 12 hex digits of the SHA-256 of its text; empty for NO_POLICY."""
        return self._digest

    def with_digest(self, digest: str) -> "Policy":
        """The same policy with the digest of its text."""
        policy = self.model_copy()
        policy._digest = digest  # noqa: SLF001 - an object of the same class
        return policy

    @cached_property
    def limits(self) -> Limits:
        """The limits of deletions that the policy sets."""
        return Limits(self.budget.global_, self.budget.per_namespace, self.budget.breaker, self.recreation)

    def candidates(self, kind: KindRule) -> tuple[Candidate, ...]:
        """The rules that match a kind, in order."""
        key = kind.group, kind.kind, kind.plural
        found = self._by_kind.get(key)
        if found is None:
            rules = (rule for rule in self.rules if rule.match.is_about(kind))
            found = self._by_kind[key] = tuple(_candidate(rule, kind) for rule in rules)
        return found

    @cached_property
    def _by_kind(self) -> dict[tuple[str, str, str], tuple[Candidate, ...]]:
        return {}

    def speaks_of(self, kind: KindRule) -> bool:
        """Whether a rule sets a TTL for objects of a kind."""
        return any(one.ttls for one in self.candidates(kind))


def _check_pattern(word: str, kinds: Catalogue) -> None:
    match = Match(kinds=(word,))
    if is_glob(word) and not any(match.is_about(rule) for rule in kinds.rules if not rule.never_finishes):
        raise ValueError(f"expected a pattern that matches a kind that can finish, got {word!r}")


def _candidate(rule: PolicyRule, kind: KindRule) -> Candidate:
    tests = rule.match.tests()
    if (when := rule.when) is not None:
        tests = (*tests, lambda subject: when.of(subject) is True)
    may_set_ttl = not kind.opt_in or rule.match.names(kind)
    kept = {outcome: kept for outcome in OUTCOMES if (kept := rule.kept_of(outcome)) is not None}
    return Candidate(rule, tests, rule.ttls if may_set_ttl else {}, kept, rule.constrains)


NO_POLICY = Policy()
"""The policy of a process for which no policy is configured."""
