"""Every reason for which an object is kept, waits, or is deleted."""

from shared.cli.deleters.obstacles import ObstacleReason
from shared.core.decision.facts import Reason
from shared.core.decision.makers import APPLIERS, DISPATCHERS
from shared.ports import HandlingReason, Verdict
from shared.safeguards.safeguards import Safeguard
from tests.reference.texts import code, fill, members, table


def render():
    """The page."""
    dispatchers = [(one.name, _sign(one), one.does) for one in DISPATCHERS]
    appliers = [(one.name, "; ".join(_signs(one)), ", ".join(map(code, one.hooks)), one.does) for one in APPLIERS]
    return fill(
        "reasons",
        decisions=_table(Reason),
        safeguards=_table(Safeguard),
        handling=_table(HandlingReason),
        obstacles=table(("Reason", "Meaning", "What to do"), sorted(_rows(ObstacleReason))),
        dispatchers=table(("Dispatcher", "Recognized by", "After an early deletion"), dispatchers),
        appliers=table(("Controller", "Recognized by", "Not on", "After a deletion"), appliers),
        verdicts=table(("Verdict", "Meaning"), [(code(one), *texts) for one, texts in members(Verdict)]),
    )


def _table(reasons):
    return table(("Reason", "Meaning", "What to do"), _rows(reasons))


def _rows(reasons):
    return [(code(one), *texts) for one, texts in members(reasons)]


def _signs(applier):
    """What an object has that a controller applies; one of them is enough."""
    if applier.annotation:
        yield f"annotation {code(applier.annotation)}"
    if applier.label:
        yield f"label {code(applier.label)}"
    if applier.managers:
        yield f"field manager {' or '.join(code(one) for one in applier.managers)}"


def _sign(dispatcher):
    if dispatcher.owner:
        return f"owner {code(dispatcher.owner)}"
    return f"label {code(dispatcher.label + (f'={dispatcher.value}' if dispatcher.value else ''))}"
