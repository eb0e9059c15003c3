"""A policy: said once, what should happen to the finished objects of a whole fleet.

One YAML file:

    apiVersion: ttlafterfinished.dev/v1
    kind: Policy
    budget:                          # how much may be deleted: see shared.core.policy.limits
      global: {perSecond: 50, burst: 100}
      perNamespace: {perSecond: 10, burst: 20}
      breaker: {count: 1000, share: 50%, atLeast: 100, window: 10m}
    recreation: {times: 5, window: 10m}   # the same name back under a new uid after our deletes: left alone
    rules:                           # in order: the first that matches and says how long, decides
      - name: failed-ci              # unique
        match:                       # all that is given must hold; kinds is required
          kinds: [jobs, pipelineruns.tekton.dev, "*"]
          namespaces: {names: ["ci-*"], except: ["ci-prod"], selector: SELECTOR}
          labels: SELECTOR           # {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: Exists}]}
          annotations: {example.com/team: "a*"}
          owners: [{kind: CronJob, name: "nightly-*"}]     # any of them; [] means: controlled by nobody
          age: 7d                    # says how long only from its creation + this on
        when: "object.spec.backoffLimit == 0"              # CEL of object, namespaceObject, outcome; never of time
        ttl: 1h                      # or never, or {succeeded: 1h, failed: 7d}
        propagation: Foreground      # these three go with a ttl
        onOwned: delete              # while the owner works; keep is the default
        jitter: 10m                  # what a sweep finds overdue is spread over so long
        minAge: 10m                  # since the finish, whatever says sooner, the object itself included
        onDispatched: delete         # where another cluster sent the object here; keep is the default. Not with age
        keepLast: 3                  # the newest of the group stay, however old
        keepLastFailed: 5            # failed ones are counted apart
        keepLastBy: owner            # or namespace (the default), {label: app}, {cel: "..."}; always of one kind, too

What should not limit a rule is left out: a list or a mapping that is empty is refused, but for `owners` and `rules`.

A rule that says no ttl only guards: minAge, keepLast and onDispatched hold for whatever matches, whoever else says how
long. Of several that match, the largest minAge counts, and the first that says keepLast or keepLastFailed, and the
first that says onDispatched.
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
    """One rule; see the module for what each field means."""

    name: str = Field(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
    match: Match
    when: AnyCondition | None = None
    ttl: AnyLasting | None = None
    keep_last: int | None = Field(default=None, ge=1, le=1_000_000)
    keep_last_failed: int | None = Field(default=None, ge=1, le=1_000_000)
    keep_last_by: AnyGrouping = NAMESPACE
    min_age: Duration | None = None
    propagation: Literal["Background", "Foreground", "Orphan"] | None = None
    on_owned: Literal["keep", "delete"] | None = None
    on_dispatched: Literal["keep", "delete"] | None = None
    jitter: Duration | None = None

    @checked(mode="after")
    def _says_something(self) -> Self:
        if self.ttl is None and not self.guards:
            raise ValueError("expected at least one of ttl, keepLast, keepLastFailed, minAge and onDispatched")
        if self.on_dispatched and self.match.age is not None:
            raise ValueError("onDispatched: expected no age in match; minAge says how long such objects stay")
        if self.ttl is None and (self.propagation or self.on_owned or self.jitter is not None):
            raise ValueError("propagation, onOwned and jitter: expected a ttl beside them")
        if not self.counts and self.keep_last_by.by != "namespace":
            raise ValueError("keepLastBy: expected keepLast or keepLastFailed beside it")
        return self

    @property
    def counts(self) -> bool:
        """Whether it keeps the newest of a group."""
        return self.keep_last is not None or self.keep_last_failed is not None

    @property
    def guards(self) -> bool:
        """Whether it has a word also where another says how long."""
        return self.counts or self.min_age is not None or self.on_dispatched is not None

    @property
    def source(self) -> str:
        """How what it says is referred to."""
        return f"policy rule {self.name}"

    def counts_apart(self, outcome: Outcome | None) -> bool:
        """Whether an object of this outcome is counted among the failed ones only."""
        return self.keep_last_failed is not None and outcome is Outcome.FAILED

    def kept_of(self, outcome: Outcome | None) -> int | None:
        """How many of a group stay among which an object of this outcome is counted; None where none does."""
        return self.keep_last_failed if self.counts_apart(outcome) else self.keep_last

    @cached_property
    def ttls(self) -> dict[Outcome | None, Ttl]:
        """What it says, by outcome."""
        outcome_ttl = self.ttl.by_outcome if self.ttl else ()
        return {outcome: Ttl(self.source, after=after, origin="policy") for outcome, after in outcome_ttl}


@dataclass(slots=True)
class Candidate:
    """A rule that is about a kind, made ready to be asked of many objects.

    Attributes:
        tests: What must hold of an object, the age aside.
        ttls: What it says, by outcome; nothing where the kind is opt-in and the rule does not name it.
        kept: How many stay of the group among which an object is counted, by outcome.
        guards: Whether it has a word also where another says how long.
    """

    rule: PolicyRule
    tests: tuple[Test, ...]
    ttls: dict[Outcome | None, Ttl]
    kept: dict[Outcome | None, int]
    guards: bool


class Policy(RuleModel):
    """Everything one file says."""

    api_version: Literal["ttlafterfinished.dev/v1"] = "ttlafterfinished.dev/v1"
    kind: Literal["Policy"] = "Policy"
    budget: BudgetLimits = BudgetLimits.model_construct()
    recreation: RecreationLimits = RecreationLimits()
    rules: tuple[PolicyRule, ...] = Field(default=(), max_length=1_000)

    @field_validator("rules")
    @classmethod
    def _named_once(cls, rules: tuple[PolicyRule, ...]) -> tuple[PolicyRule, ...]:
        names = [rule.name for rule in rules]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"expected unique names, got {twice!r} twice")
        return rules

    def of_kinds(self, kinds: Catalogue) -> "Policy":
        """The same with every kind named in full: a slip must not mean nothing, and `backups` not four kinds at once.

        Args:
            kinds: All that are known. Of those that share a name the built-in one is meant, as everywhere.

        Raises:
            ValidationError: A word names no kind, several, or one that never finishes; a pattern fits none.
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
        """The same policy, of a text with this digest."""
        policy = self.model_copy()
        policy._digest = digest  # noqa: SLF001 - of its own class
        return policy

    @cached_property
    def limits(self) -> Limits:
        """How much may be deleted, and how fast."""
        return Limits(self.budget.global_, self.budget.per_namespace, self.budget.breaker, self.recreation)

    def candidates(self, kind: KindRule) -> tuple[Candidate, ...]:
        """The rules that are about a kind, in order."""
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
        """Whether it says for any object of a kind how long it stays."""
        return any(one.ttls for one in self.candidates(kind))


def _check_pattern(word: str, kinds: Catalogue) -> None:
    match = Match(kinds=(word,))
    if is_glob(word) and not any(match.is_about(rule) for rule in kinds.rules if not rule.never_finishes):
        raise ValueError(f"expected a pattern that fits a kind that can finish, got {word!r}")


def _candidate(rule: PolicyRule, kind: KindRule) -> Candidate:
    tests = rule.match.tests()
    if (when := rule.when) is not None:
        tests = (*tests, lambda subject: when.of(subject) is True)
    speaks = not kind.opt_in or rule.match.names(kind)
    kept = {outcome: kept for outcome in OUTCOMES if (kept := rule.kept_of(outcome)) is not None}
    return Candidate(rule, tests, rule.ttls if speaks else {}, kept, rule.guards)


NO_POLICY = Policy()
"""Where none is configured."""
