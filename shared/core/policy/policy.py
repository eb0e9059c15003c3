"""A policy: rules that set TTLs and limits for the finished objects of a whole cluster or fleet.

A policy is one YAML file:

    apiVersion: ttlafterfinished.dev/v1
    kind: Policy
    budget:                          # how much may be deleted, and how fast: see shared.core.policy.limits
      global: {perSecond: 50, burst: 100}
      perNamespace: {perSecond: 10, burst: 20}
      breaker: {count: 1000, share: 50%, atLeast: 100, window: 10m}
    recreation: {times: 5, window: 10m}   # a name deleted so often that exists again is kept for the window
    archives: {main: {url: "s3://bucket/prefix"}}   # by name: see shared.core.policy.archives
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
        propagation: Foreground      # needs ttl, maxCount, whenQuotaAbove or onDeadline: delete
        onOwned: delete              # while the controller owner is unfinished; keep is the default. Of Pods
                                     # only if the kind of the owner has no kind rule
        jitter: 10m                  # a sweep spreads late deletions over this time; needs a ttl or a limit
        minAge: 10m                  # kept so long after the finish, whichever source sets a shorter TTL
        activeDeadline: 6h           # how long an unfinished object may run; or never. Not with age
        pendingDeadline: 1h          # how long a Pod may wait for its first container; or never. Not with age
        onDeadline: delete           # what is done at both: suspend, delete, or stop, the default
        onDispatched: delete         # if another cluster sent the object here; keep is the default. Not with age
        onRecreated: delete          # if Argo CD, Flux or the like creates it again; keep is the default. Not with age
        keepLast: 3                  # the newest of a group that succeeded are kept, and as many that failed
        keepLastFailed: 5            # that many failed ones, instead of as many as keepLast
        keepLastOutcomes: apart      # the default; with together, one number for all outcomes. Not with keepLastFailed
        keepLastBy: owner            # or namespace (the default), {label: app}, {cel: "..."}; always of one kind
        maxCount: 50                 # above it the oldest finished objects of a group are due, with or without a TTL
        countBy: owner               # what makes a group: as in keepLastBy
        whenQuotaAbove: 90%          # of a ResourceQuota on count/PLURAL.GROUP: above it, the oldest with a TTL are due
        notBefore: 10m               # ... early, but each at least so long after its finish; 10m is the default
        archive: {to: main, grace: 24h, logs: false, children: true}   # archived before it is deleted. Not with age
        unused: {ttl: 7d, audit: true}   # of Secrets and ConfigMaps only, beside archive: see shared.core.policy.usage
        warn: 1h                     # before the object is due, the event object.warned is sent; needs a ttl
        audit: true                  # only reports what the rule would delete, stop, archive or mark

If a field should not limit a rule, leave it out: an empty list or mapping is rejected, except for `owners` and `rules`.

minAge, keepLast, keepLastFailed, onDispatched, onRecreated, maxCount, whenQuotaAbove and archive apply to every object
that matches, whichever source sets its TTL. A rule without a ttl sets only these. If several rules match, the largest
minAge counts. The first rule with keepLast or keepLastFailed counts, and so do the first with onDispatched, with
onRecreated, with maxCount, with whenQuotaAbove, and with archive.

audit changes no precedence: a rule with audit that sets the TTL, the deadline or the archive of an object applies, and
the rules after it do not. The object is then kept, and reported once it is due. If only a limit of a rule with audit
makes the object due, the object is reported, and still deleted when its own TTL is over.

maxCount and whenQuotaAbove delete no object that a hold, an exempt namespace, `never`, keepLast or minAge keeps. For
owners and dispatchers, they count as the ttl of a policy rule. Objects that are kept fill the group, too: the newest
maxCount objects of a group are never deleted by it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import Field, PrivateAttr, ValidationError, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from shared.core.deadlines.deadline import Deadline, Stage
from shared.core.kinds.predicates import RuleModel
from shared.core.kinds.rule import Catalogue, KindRule, Outcome
from shared.core.policy.archives import ArchiveDestination, ArchiveName, find_archive_problems
from shared.core.policy.limits import BudgetLimits, Limits, RecreationLimits
from shared.core.policy.matching import OUTCOMES, Match, Test, is_glob
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.usage import USAGE_KINDS, find_usage_kinds
from shared.core.ttl.ttl import Ttl


@dataclass(slots=True)
class Candidate:
    """A rule that matches a kind, prepared for many objects of that kind.

    Attributes:
        rule: The rule.
        tests: The tests that an object must pass, except for its age.
        lasting_tests: Those of them that do not depend on how the object ends: all but `when`.
        ttls: The TTLs that it sets, by outcome; empty if the kind is opt-in and the rule does not name it.
        kept: How many of the newest objects of a group are kept, by outcome.
        constrains: Whether it has a field that applies whichever source sets the TTL.
        deadlines: The deadlines that it sets, by the stage that they limit; empty if the kind is opt-in and the rule
            does not name it.
        limits: Whether it limits objects by count or by quota; False if the kind is opt-in and the rule does not name
            it.
        archives: Whether it has objects archived, also those of an opt-in kind that it does not name.
    """

    rule: PolicyRule
    tests: tuple[Test, ...]
    lasting_tests: tuple[Test, ...]
    ttls: dict[Outcome | None, Ttl]
    kept: dict[Outcome | None, int]
    constrains: bool
    deadlines: Mapping[Stage, Deadline]
    limits: bool
    archives: bool


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
    archives: dict[ArchiveName, ArchiveDestination] = Field(
        default={},
        max_length=100,
        description="The archives, by name. A rule with archive, or an annotation, refers to one of them.",
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
            ValidationError: A word names no kind, several kinds, or one that never finishes; a pattern matches none. Or
                a rule with pendingDeadline names a kind that has none.
        """
        rules: list[PolicyRule] = []
        errors: list[InitErrorDetails] = []
        for index, rule in enumerate(self.rules):
            names: list[str] = []
            for place, word in enumerate(rule.match.kinds):
                try:
                    names += _resolve(word, rule, kinds)
                except ValueError as error:
                    problem = PydanticCustomError("kind", "{problem}", {"problem": str(error)})
                    errors.append(
                        InitErrorDetails(type=problem, loc=("rules", index, "match", "kinds", place), input=word)
                    )
            match = rule.match.model_copy(update={"kinds": tuple(dict.fromkeys(names))})
            rules.append(rule.model_copy(update={"match": match}))
        of_rules = [USAGE_KINDS if rule.unused is not None else kinds for rule in rules]
        matched = [
            (rule.archive, [one for one in known.rules if rule.match.is_about(one)])
            for rule, known in zip(rules, of_rules, strict=True)
        ]
        errors += find_archive_problems(matched, self.archives)
        errors += _find_pending_problems(rules, kinds)
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
            found = self._by_kind[key] = tuple(_prepare_rule(rule, kind) for rule in rules)
        return found

    @cached_property
    def _by_kind(self) -> dict[tuple[str, str, str], tuple[Candidate, ...]]:
        return {}

    def archives_kind(self, kind: KindRule) -> bool:
        """Return whether a rule has objects of a kind archived."""
        return any(one.archives for one in self.candidates(kind))

    def sets_deadline_for(self, kind: KindRule) -> bool:
        """Return whether a rule sets a deadline for objects of a kind."""
        return any(one.deadlines for one in self.candidates(kind))

    def sets_ttl_for(self, kind: KindRule) -> bool:
        """Return whether a rule sets a TTL for objects of a kind, or limits their number, which needs no TTL."""
        return any(one.ttls or (one.limits and one.rule.max_count is not None) for one in self.candidates(kind))

    def limits_by_quota(self, kind: KindRule) -> bool:
        """Return whether a rule lets objects of a kind go before their time because of a quota."""
        return any(one.limits and one.rule.when_quota_above is not None for one in self.candidates(kind))


def _find_pending_problems(rules: Sequence[PolicyRule], kinds: Catalogue) -> Iterator[InitErrorDetails]:
    """Yield an error for each rule whose pendingDeadline has no effect on a kind that the rule names."""
    having = {one.name for one in kinds.rules if one.deadline is not None and one.deadline.pending is not None}
    for index, rule in enumerate(rules):
        lacking = {one.name for one in kinds.rules if rule.match.names(one)} - having
        if rule.pending_deadline is not None and lacking:
            problem = f"expected kinds whose objects show that they have never started ({', '.join(sorted(having))})"
            error = PydanticCustomError(
                "pending", "{problem}", {"problem": f"{problem}, got {', '.join(sorted(lacking))}"}
            )
            yield InitErrorDetails(type=error, loc=("rules", index, "pendingDeadline"), input=rule.pending_deadline)


def _resolve(word: str, rule: PolicyRule, kinds: Catalogue) -> list[str]:
    """The full names of the kinds that a word in the match of a rule names; a pattern stays a pattern."""
    if rule.unused is not None:
        return [one.name for one in find_usage_kinds(word)]
    _check_pattern(word, kinds)
    return [word] if is_glob(word) else [one.name for one in kinds.finishing(word)]


def _check_pattern(word: str, kinds: Catalogue) -> None:
    match = Match(kinds=(word,))
    if is_glob(word) and not any(match.is_about(rule) for rule in kinds.rules if not rule.never_finishes):
        raise ValueError(f"expected a pattern that matches a kind that can finish, got {word!r}")


NO_POLICY = Policy()
"""The policy of a process for which no policy is configured."""


def _prepare_rule(rule: PolicyRule, kind: KindRule) -> Candidate:
    """Prepare a rule that matches a kind."""
    tests = lasting_tests = rule.match.tests()
    if (when := rule.when) is not None:
        tests = (*tests, lambda subject: when.of(subject) is True)
    may_set_ttl = not kind.opt_in or rule.match.names(kind)
    kept = {outcome: kept for outcome in OUTCOMES if (kept := rule.kept_of(outcome)) is not None}
    ttls, deadlines = (rule.ttls, rule.deadlines) if may_set_ttl else ({}, {})
    if kind.deadline is None or kind.deadline.pending is None:
        deadlines = {stage: one for stage, one in deadlines.items() if stage is not Stage.PENDING}
    limits, archives = may_set_ttl and rule.limits, rule.archive is not None
    return Candidate(rule, tests, lasting_tests, ttls, kept, rule.constrains, deadlines, limits, archives)
