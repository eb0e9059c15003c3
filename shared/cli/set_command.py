"""`set`: set or remove the TTL and the deadlines of one object."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, get_args

import click

from shared.cli.input.command import command
from shared.cli.input.options import Options, context_namespace_option, object_options
from shared.cli.objects.edited_object import (
    EditTarget,
    connected_target,
    describe_override,
    echo_decision,
    echo_obstacles,
)
from shared.cli.objects.object_report import describe_deadline, is_stop_ahead
from shared.cli.output.printing import echo
from shared.core.deadlines.deadline import Stage
from shared.core.decision.decide import Decision, Reason
from shared.core.kinds.rule import KindRule, Outcome
from shared.core.kinds.ttl_and_deadline import Action
from shared.core.ttl import edits
from shared.core.ttl.edits import check_deadline, merge_edits, set_deadlines, unset_deadline
from shared.core.values.objects import ANNOTATION_DOMAIN, ObjectRef, printable
from shared.errors import TtlError
from shared.usecases.hold import Written

_EXPECTED = "expected KIND/NAME TIME, for instance job/backup 1h, or KIND/NAME with --deadline, --unset or both"


@dataclass(frozen=True, slots=True)
class Wish:
    """What `set` is to change; None leaves a value as it is.

    Attributes:
        ttl: The TTL.
        outcome: The only outcome for which the TTL is set or removed; None for both.
        unsets_ttl: Whether to remove the TTL annotations.
        deadline: The active deadline.
        pending: The pending deadline.
        action: What is done at the deadline.
        unsets_deadline: Whether to remove the deadline annotations.
    """

    ttl: str | None = None
    outcome: Outcome | None = None
    unsets_ttl: bool = False
    deadline: str | None = None
    pending: str | None = None
    action: Action | None = None
    unsets_deadline: bool = False

    @property
    def deadlines(self) -> Mapping[Stage, str]:
        """The deadlines to set, by the stage that they limit."""
        given = {Stage.ACTIVE: self.deadline, Stage.PENDING: self.pending}
        return {stage: value for stage, value in given.items() if value is not None}

    @property
    def is_about_ttl(self) -> bool:
        """Return whether the TTL is to change."""
        return self.ttl is not None or self.unsets_ttl

    @property
    def is_about_deadline(self) -> bool:
        """Return whether the deadline is to change."""
        return bool(self.deadlines) or self.action is not None or self.unsets_deadline

    def check(self) -> None:
        """Check the values before the command connects to a cluster.

        Raises:
            UsageError: The options contradict each other, or nothing is to change.
            BadParameter: A value cannot be read, or does not fit the outcome.
        """
        if self.unsets_deadline and (self.deadlines or self.action is not None):
            raise click.UsageError(
                "expected either --unset-deadline or --deadline, --pending-deadline and --on-deadline, got both"
            )
        if not self.is_about_ttl and not self.is_about_deadline:
            raise click.UsageError(_EXPECTED)
        if self.outcome is not None and not self.is_about_ttl:
            raise click.UsageError("--succeeded and --failed require TIME or --unset: a deadline has no outcome")
        with _named("TIME"):
            if self.ttl is not None:
                edits.check_ttl(self.ttl, self.outcome)
        for option, value in (("--deadline", self.deadline), ("--pending-deadline", self.pending)):
            with _named(option):
                if value is not None:
                    check_deadline(value)

    def find_edit(self, obj: Any, rule: KindRule) -> edits.Edit | None:
        """Find the edit for an object that was read; None if there is nothing to remove.

        Raises:
            ValueError: The edit is not possible.
        """
        of_ttl = of_deadline = None
        if self.unsets_ttl:
            of_ttl = edits.unset_ttl(obj, self.outcome)
        elif self.ttl is not None:
            of_ttl = edits.set_ttl(obj, rule, self.ttl, outcome=self.outcome)
        if self.unsets_deadline:
            of_deadline = unset_deadline(obj)
        elif self.is_about_deadline:
            of_deadline = set_deadlines(obj, rule, self.deadlines, self.action)
        return merge_edits(of_ttl, of_deadline)


@contextmanager
def _named(parameter: str) -> Iterator[None]:
    """Name the parameter in the message about a value that cannot be read."""
    try:
        yield
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=parameter) from None


@command("set")
@click.argument("words", nargs=-1, metavar="KIND/NAME [TIME]")
@click.option("--succeeded", is_flag=True, help="TIME is only for an object that succeeds.")
@click.option("--failed", is_flag=True, help="TIME is only for an object that fails.")
@click.option("--unset", is_flag=True, help="Without TIME: remove the TTL annotations.")
@click.option("--deadline", metavar="TIME", help="How long the object may run: a duration, or never.")
@click.option("--pending-deadline", metavar="TIME", help="How long a Pod may wait until its first container runs.")
@click.option("--on-deadline", type=click.Choice(get_args(Action)), help="What is done at the deadline. Default: stop.")
@click.option("--unset-deadline", is_flag=True, help="Remove the deadline annotations.")
@context_namespace_option
@object_options
async def set_ttl(
    options: Options,
    *,
    words: tuple[str, ...],
    succeeded: bool,
    failed: bool,
    unset: bool,
    deadline: str | None,
    pending_deadline: str | None,
    on_deadline: Action | None,
    unset_deadline: bool,
) -> None:
    """Set the TTL of an object: how long it is kept after it finishes. Or set its deadline: how long it may run.

    TIME is a duration (3600, 90s, 1h30m, 2d), `never`, or an instant (2026-01-02T03:04:05Z), which no deadline may be.
    The deadline counts from the start of the object, or from its last resume. The pending deadline applies before that.
    """
    given = (deadline, pending_deadline, on_deadline)
    is_about_deadline = unset_deadline or any(one is not None for one in given)
    target, ttl = _split(words, unset=unset, may_lack_time=is_about_deadline)
    if succeeded and failed:
        raise click.UsageError("expected one of --succeeded and --failed, or neither, which means both")
    of = Outcome.SUCCEEDED if succeeded else Outcome.FAILED if failed else None
    wish = Wish(ttl, of, unset, *given, unset_deadline)
    wish.check()
    async with connected_target(target, options) as found:
        written = await found.write(lambda obj: wish.find_edit(obj, found.rule))
        decision = await found.report(_describe_annotations(written, found.ref), written)
        if wish.is_about_ttl:
            echo_decision(decision, written, found)
            if shorter := wish.ttl is not None and await _describe_maximum(wish.ttl, decision, found):
                echo(f"note: {shorter}", indent=2)
        ineffective = await _report_deadline(written, found) if wish.is_about_deadline else ""
        if wish.is_about_ttl and (overridden := describe_override(decision, written, found.rule)):
            raise TtlError(f"this TTL is overridden: {overridden}")
        if wish.deadlines and ineffective:
            raise TtlError(f"this deadline has no effect: {ineffective}")


def _split(words: tuple[str, ...], *, unset: bool, may_lack_time: bool) -> tuple[tuple[str, ...], str | None]:
    """Split the arguments into the target, KIND/NAME or KIND NAME, and TIME if there is one.

    Raises:
        UsageError: They are neither.
    """
    names = 1 if words and "/" in words[0] else 2
    has_time = not unset and not (may_lack_time and len(words) <= names)
    target, ttl = (words[:-1], words[-1] if words else "") if has_time else (words, None)
    if not target or len(target) > 2 or (ttl is None and len(target) > names):  # noqa: PLR2004 - KIND NAME
        raise click.UsageError(_EXPECTED)
    return target, ttl


async def _report_deadline(written: Written, target: EditTarget) -> str:
    """Print the deadline of the changed object; return why it has no effect, or an empty text."""
    snapshot = written.snapshot
    stop = (await target.evaluator.evaluate_stop(snapshot, target.rule)).decision
    *before, fate = list(describe_deadline(stop, target.rule, snapshot.read_at)) or ["no source sets a deadline"]
    for line in before:
        echo(f"deadline: {printable(line)}", indent=2)
    if stop.reason is Reason.ENFORCED_BY_CONTROLLER:
        return printable(fate)
    echo(f"deadline: {printable(fate)}", indent=2)
    if is_stop_ahead(stop):
        echo_obstacles(stop, written, target)
    return ""


def _describe_annotations(written: Written, ref: ObjectRef) -> str:
    """Name the annotations that `set` wrote or removed."""
    if written.change is None:
        return f"{ref}: nothing to unset"
    values = {name: value for name, value in written.change.annotations.items() if value is not None}
    if not values:
        removed = ", ".join(f"{ANNOTATION_DOMAIN}/{name}" for name in written.change.annotations)
        return f"{ref}: removed {removed}"
    return f"{ref}: set " + ", ".join(f"{ANNOTATION_DOMAIN}/{name}: {value}" for name, value in values.items())


async def _describe_maximum(wish: str, decision: Decision, target: EditTarget) -> str:
    """Say how max-ttl of the namespace shortens a TTL; the decision itself reports a namespace that cannot be read."""
    with suppress(TtlError):
        name = target.ref.namespace
        namespace = await target.evaluator.namespaces.get(name) if name else None
        if namespace is not None:
            return edits.describe_maximum(wish, namespace.max_ttl, decision.facts.finish.at)
    return ""
