"""TTLs that are overridden because the kind's own controller acts on its field first."""

import pytest

from shared.core.decision.decide import Context, decide
from shared.core.decision.namespaces import plain_namespace
from shared.core.policy.policy import Policy
from shared.core.ttl.ttl import advise_overridden, describe_overridden
from tests.builders import JOB, NOW, ago, job, later, not_none, pod

FIELD = "spec.ttlSecondsAfterFinished"


def overridden(obj, rule=JOB):
    return decide(obj, rule, NOW, Context(namespace=plain_namespace("ci"))).facts.overridden


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        pytest.param(job(ttl=60), "", id="only the field"),
        pytest.param(job(ttl=60, ttl_="x"), "", id="another annotation"),
        pytest.param(job(complete=ago(1), hold="why"), "", id="held, without the field"),
        pytest.param(job(ttl=60, hold="why"), FIELD, id="held"),
        pytest.param(job(ttl=60, expire_at="soon"), FIELD, id="unreadable, and so kept"),
        pytest.param(job(ttl=-1, hold="why"), "", id="a field that no API server takes"),
        pytest.param(job(ttl=60, expire_at=later(60)), "", id="an instant, unfinished"),
        pytest.param(job(complete=ago(1), ttl=60, expire_at=later(60)), FIELD, id="a later instant"),
        pytest.param(job(complete=ago(1), ttl=60, expire_at=later(59)), "", id="the same instant"),
    ],
)
def test_settings_beside_the_native_field_are_overridden(obj, field):
    assert overridden(obj) == field


@pytest.mark.parametrize(("ttl", "field"), [("59s", ""), ("60s", ""), ("61s", FIELD), ("never", FIELD)])
@pytest.mark.parametrize("finished", [None, ago(1_000)])
def test_longer_ttl_is_overridden_finished_or_not(finished, ttl, field):
    obj = job(complete=finished, ttl=60)
    obj["metadata"]["annotations"] = {"ttlafterfinished.dev/ttl": ttl}
    assert overridden(obj) == field


def test_annotation_of_another_outcome_is_not_overridden():
    assert overridden(job(complete=ago(1), ttl=60, ttl_failed="1h")) == ""
    assert overridden(job(failed=ago(1), ttl=60, ttl_failed="1h")) == FIELD


def test_field_without_a_controller_overrides_nothing():
    ours = JOB.model_copy(update={"ttl": not_none(JOB.ttl).model_copy(update={"honoured_by": None})})
    assert overridden(job(ttl=60, hold="why"), ours) == ""
    assert overridden(pod(hold="why")) == ""


def test_overridden_ttl_is_described_with_controller_and_advice():
    text = describe_overridden(job(ttl=60), JOB, FIELD)
    assert text == f"kube-controller-manager acts on {FIELD}: 60, whatever the other settings are"
    assert "kubectl ttl hold" in advise_overridden(FIELD)
    assert "kubectl ttl hold" not in advise_overridden("status.expiration")


def test_native_field_overrides_an_invalid_annotation_about_an_archive():
    policy = Policy.model_validate({"archives": {"main": {"url": "file:///archive"}}})
    obj = job(complete=ago(1), ttl=60, archive="nowhere")
    decision = decide(obj, JOB, NOW, Context(policy, namespace=plain_namespace("ci")))
    assert (decision.reason, decision.facts.overridden) == ("invalid-archive", FIELD)
