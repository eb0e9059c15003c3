"""All shipped kinds, from their rules."""

import json

from shared.adapters.config.kind_files import read_rule_files
from shared.cli.kind_rules.rule_text import describe_rule, describe_waiter, summarize_finished, summarize_ttl
from tests.reference.texts import code, fill, joined, table


def render():
    """The page."""
    rules = sorted((one.rule for one in read_rule_files()), key=lambda rule: (rule.name, rule.api_versions))
    finishing = [rule for rule in rules if not rule.never_finishes and not rule.opt_in]
    opt_in = [rule for rule in rules if not rule.never_finishes and rule.opt_in]
    never = [rule for rule in rules if rule.never_finishes]
    return fill(
        "kinds",
        finish_count=len(finishing) + len(opt_in),
        opt_in_count=len(opt_in),
        never_count=len(never),
        finishing=_table(finishing),
        opt_in=_table(opt_in, more="Why opt-in", text=lambda rule: rule.opt_in),
        never=table(("Kind", "Name", "Why"), [(rule.kind, code(rule.name), rule.never_finishes) for rule in never]),
        stops=_stops([rule for rule in rules if rule.deadline]),
        details=joined(part for rule in (*finishing, *opt_in) for part in _section(rule)),
    )


def _table(rules, *, more="", text=lambda _: ""):
    """One row a kind; `more` is the title of a further column, and `text` what it has."""
    titles = ("Kind", "Name", "Versions", "Finished by", "TTL field", *([more] if more else []))
    rows = [
        (f"[{rule.kind}](#{_anchor(rule)})", code(rule.name), _versions(rule), _finished(rule), _ttl(rule), text(rule))
        for rule in rules
    ]
    return table(titles, [row[: len(titles)] for row in rows])


def _stops(rules):
    """One row for all kinds that are stopped in the same way and have the same waiters."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for rule in rules:
        stop, waiters = rule.deadline.stop, rule.deadline.waiters
        patch = code(json.dumps(stop.patch)) if stop else f"not stopped: {rule.deadline.cannot_stop}"
        waits = "; ".join(map(describe_waiter, waiters))
        pending = "yes" if rule.deadline.pending else ""
        groups.setdefault((patch, _end_of(stop), waits, pending), []).append(f"[{rule.kind}](#{_anchor(rule)})")
    titles = ("Kinds", "At the deadline", "The object then", "What waits for its end", "Pending deadline")
    return table(titles, [(", ".join(kinds), *row) for row, kinds in groups.items()])


def _end_of(stop):
    if stop is None:
        return "runs on"
    return "is suspended" if stop.ends else "finishes" if stop.finishes else "stays unfinished"


def _ttl(rule):
    return code(summarize_ttl(rule)) if rule.ttl else ""


def _finished(rule):
    """The condition or the field of the status; a test of more fields is described below."""
    words = summarize_finished(rule)
    return words if words.startswith(("condition", "status")) else f"several fields: [details](#{_anchor(rule)})"


def _versions(rule):
    return ", ".join(version.rpartition("/")[2] for version in rule.api_versions)


def _heading(rule):
    """One name may have two rules, for different versions."""
    return f"{rule.name} {_versions(rule)}"


def _anchor(rule):
    return "".join(one for one in _heading(rule).lower().replace(" ", "-") if one.isalnum() or one == "-")


def _section(rule):
    rows = [
        (about, "; ".join(sentences)) for about, sentences in describe_rule(rule) if about not in ("versions", "opt-in")
    ]
    return f"### {_heading(rule)}", table(("", rule.kind), rows)
