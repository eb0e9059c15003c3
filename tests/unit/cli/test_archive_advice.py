"""What `explain` advises about an object that is kept because of its archive."""

from dataclasses import replace

from shared.cli.deleters.in_force import PolicyInForce
from shared.cli.objects.advice import advise_archive
from shared.core.archive.archiving import Archiving
from shared.core.decision.decide import Facts, Ignore, Reason
from shared.core.decision.finish import Finish
from shared.core.policy.policy import Policy
from shared.core.values.objects import ref_of
from tests.builders import JOB, ago, job, namespace

WAITING = Ignore(
    Reason.NOT_ARCHIVED, Facts(Finish(finished=True, at=ago(60)), archiving=Archiving("main", "policy rule ci"))
)
OPT_OUT = (
    "to opt out; the object is then deleted without a copy: "
    "`kubectl annotate --overwrite jobs.batch/build-42 ttlafterfinished.dev/archive=false -n ci`"
)
LOCAL = PolicyInForce(
    Policy.model_validate({"archives": {"main": {"url": "file:///archive"}}}), name="policy.yaml", is_local=True
)


def advice(decision=WAITING, *, has_obstacle=False, chosen=LOCAL):
    found = advise_archive(decision, ref_of(job()), JOB, chosen=chosen, flags=(), has_obstacle=has_obstacle)
    return list(found)


def test_object_that_is_archived_soon_needs_nothing():
    assert advice() == ["wait for the archive", OPT_OUT]


def test_waiting_is_no_advice_if_an_obstacle_prevents_the_archiving():
    assert advice(has_obstacle=True) == [OPT_OUT]


def test_problem_of_the_archive_is_checked_with_doctor():
    failing = replace(WAITING, facts=replace(WAITING.facts, problem="archive main: 403"))
    assert advice(failing) == ["fix the problem, then `kubectl ttl doctor --policy policy.yaml`", OPT_OUT]
    assert advice(failing, chosen=replace(LOCAL, is_local=False))[0] == "fix the problem, then `kubectl ttl doctor`"


def test_wrong_annotation_is_overwritten_on_the_object_or_its_namespace():
    wrong = Ignore(Reason.INVALID_ARCHIVE, WAITING.facts)
    assert advice(wrong) == [
        (
            "set the name of an archive: `kubectl annotate --overwrite jobs.batch/build-42 "
            "ttlafterfinished.dev/archive=main -n ci`"
        )
    ]
    of_namespace = replace(wrong, facts=replace(wrong.facts, problem_of=ref_of(namespace("ci"))))
    assert advice(of_namespace) == [
        "set the name of an archive: `kubectl annotate --overwrite namespace ci ttlafterfinished.dev/archive=main`"
    ]
