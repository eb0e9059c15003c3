"""Check that the fields of a policy rule go together."""

from typing import TYPE_CHECKING

from shared.core.policy.unused import check_unused

if TYPE_CHECKING:
    from shared.core.policy.policy_rule import PolicyRule


def check_rule(rule: "PolicyRule") -> None:
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


def _check_kept(rule: "PolicyRule") -> None:
    if not rule.counts and rule.keep_last_by.by != "namespace":
        raise ValueError("keepLastBy: expected keepLast or keepLastFailed beside it")
    if rule.keep_last_outcomes == "together" and (rule.keep_last is None or rule.keep_last_failed is not None):
        raise ValueError("keepLastOutcomes: expected keepLast, and no keepLastFailed, beside together")


def _check_age(rule: "PolicyRule") -> None:
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


def _check_deletion(rule: "PolicyRule") -> None:
    if rule.ttl is not None or rule.limits:
        return
    if rule.on_owned and not rule.sets_deadline:
        fields = "a ttl, maxCount, whenQuotaAbove, activeDeadline or pendingDeadline"
        raise ValueError(f"onOwned: expected {fields} beside it")
    if rule.jitter is not None:
        raise ValueError("jitter: expected a ttl, maxCount or whenQuotaAbove beside it")
    if rule.propagation and rule.on_deadline != "delete":
        raise ValueError("propagation: expected a ttl, maxCount, whenQuotaAbove or onDeadline: delete beside it")


def _check_limits(rule: "PolicyRule") -> None:
    kept = max(rule.keep_last or 0, rule.keep_last_failed or 0)
    if rule.max_count is None and rule.count_by.by != "namespace":
        raise ValueError("countBy: expected maxCount beside it")
    if rule.max_count is not None and rule.count_by == rule.keep_last_by and rule.max_count < kept:
        raise ValueError(f"maxCount: expected at least {kept}, which the rule keeps, got {rule.max_count}")
    if rule.not_before is not None and rule.when_quota_above is None:
        raise ValueError("notBefore: expected whenQuotaAbove beside it")
