"""An object that has to be archived is kept until exactly this version of it is acknowledged, and the grace is over."""

import pytest

from shared.core.archive.archiving import ChildrenFact
from shared.core.archive.gate import find_stored_at
from shared.core.deadlines.decide_stop import Stop, decide_stop
from shared.core.decision.decide import Context, Expire, Ignore, Reason, Wait, decide
from shared.core.decision.facts import UNREAD_CHILDREN
from shared.core.decision.namespaces import namespace_of
from shared.core.policy.policy import NO_POLICY, Policy
from tests.archives import acknowledged, archiving
from tests.builders import (
    JOB,
    NOW,
    POD,
    ago,
    annotated,
    ended,
    having,
    job,
    kind_rule,
    later,
    namespace,
    not_none,
    pod,
    shipped_kinds,
)

DUE = job(complete=ago(60), ttl=30)
HOME = namespace_of(namespace())
OTHERS = {"main": {"url": "file:///a"}, "other": {"webhook": "https://b"}}


def context(policy=None, home=HOME, archived=None):
    return Context(policy or archiving(), home, archived=archived)


def verdict(obj=DUE, rule=JOB, **parts):
    decision = decide(obj, rule, NOW, context(**parts))
    match decision:
        case Expire(since):
            return "expire", since
        case Wait(until):
            return "wait", until
        case Ignore(reason):
            return reason


def test_object_without_an_acknowledgement_is_kept_however_late():
    decision = decide(DUE, JOB, later(10**8), context())

    assert (decision.reason, not_none(decision.facts.archiving).to) == (Reason.ARCHIVE_UNREAD, "main")


@pytest.mark.parametrize(
    ("acknowledged_at", "expected"),
    [
        pytest.param(ago(3600), ("expire", NOW), id="the grace ends now"),
        pytest.param(ago(3601), ("expire", ago(1)), id="the grace is over, and due counts from then"),
        pytest.param(ago(3599), ("wait", later(1)), id="the grace is not over"),
        pytest.param(NOW, ("wait", later(3600)), id="acknowledged now after an outage"),
        pytest.param(ago(10**6), ("expire", ago(30)), id="the TTL ended after the grace"),
        pytest.param(None, Reason.NOT_ARCHIVED, id="asked, and not stored"),
    ],
)
def test_grace_counts_from_the_acknowledgement(acknowledged_at, expected):
    assert verdict(archived=acknowledged(DUE, acknowledged_at)) == expected


@pytest.mark.parametrize(
    "change", [{"uid": "another"}, {"resource_version": "1041"}, {"resource_version": ""}, {"to": "other"}]
)
def test_acknowledgement_of_another_version_or_archive_does_not_count(change):
    assert verdict(archived=acknowledged(DUE, ago(10**6), **change)) == Reason.ARCHIVE_UNREAD


def test_object_without_a_resource_version_is_never_acknowledged():
    obj = having(DUE, "metadata.resourceVersion", "")

    assert verdict(obj, archived=acknowledged(obj, ago(10**6))) == Reason.ARCHIVE_UNREAD


@pytest.mark.parametrize(
    ("obj", "home", "expected"),
    [
        pytest.param(annotated(DUE, hold="why"), namespace(), Reason.HELD, id="held"),
        pytest.param(DUE, namespace(exempt="true"), Reason.EXEMPT, id="exempt"),
        pytest.param(DUE, namespace(exempt="yes"), Reason.INVALID_POLICY, id="namespace that cannot be read"),
        pytest.param(annotated(DUE, ttl="soon"), namespace(), Reason.INVALID_TTL, id="invalid TTL"),
        pytest.param(job(complete=ago(60)), namespace(), Reason.NO_TTL, id="no TTL"),
        pytest.param(job(ttl=30), namespace(), Reason.UNFINISHED, id="unfinished"),
    ],
)
def test_other_reasons_to_keep_an_object_come_first(obj, home, expected):
    assert verdict(obj, home=namespace_of(home), archived=acknowledged(obj, ago(10**6))) == expected
    assert verdict(obj, home=namespace_of(home)) == expected


@pytest.mark.parametrize(
    ("on_object", "on_namespace", "expected"),
    [
        ("false", None, ("expire", ago(30))),
        ("false", "true", ("expire", ago(30))),
        (None, "false", ("expire", ago(30))),
        ("true", "false", Reason.ARCHIVE_UNREAD),
        ("main", "false", Reason.ARCHIVE_UNREAD),
        ("other", None, Reason.ARCHIVE_UNREAD),
        ("yes", None, Reason.INVALID_ARCHIVE),
        ("", None, Reason.INVALID_ARCHIVE),
        ("nowhere", "false", Reason.INVALID_ARCHIVE),
        (None, "nowhere", Reason.INVALID_ARCHIVE),
        (None, "True", Reason.INVALID_ARCHIVE),
    ],
)
def test_annotations_of_the_object_then_of_the_namespace_take_precedence(on_object, on_namespace, expected):
    obj = annotated(DUE, archive=on_object) if on_object is not None else DUE
    home = namespace(archive=on_namespace) if on_namespace is not None else namespace()

    assert verdict(obj, policy=archiving(archives=OTHERS), home=namespace_of(home)) == expected


@pytest.mark.parametrize("value", [None, True, 3, ["main"], {"to": "main"}])
def test_annotation_that_is_no_text_keeps_the_object(value):
    assert verdict(annotated(DUE, archive=value)) == Reason.INVALID_ARCHIVE
    assert verdict(home=namespace_of(namespace(archive=value))) == Reason.INVALID_POLICY


def test_annotation_opts_in_to_another_archive_and_keeps_the_grace_of_the_rule():
    obj = annotated(DUE, archive="other")
    decision = decide(obj, JOB, NOW, context(archiving(archives=OTHERS), archived=acknowledged(obj, NOW, to="other")))

    assert decision == Wait(later(3600), Reason.NOT_DUE, decision.facts)
    wanted = not_none(decision.facts.archiving)
    assert (wanted.to, wanted.rule) == ("other", "one")
    assert decision.facts.moved_by == "the grace of the archive other"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(NO_POLICY, Reason.INVALID_ARCHIVE, id="no archive"),
        pytest.param(archiving(match={"kinds": ["pods"]}), Reason.ARCHIVE_UNREAD, id="the only archive"),
        pytest.param(
            archiving(match={"kinds": ["pods"]}, archives=OTHERS), Reason.INVALID_ARCHIVE, id="several, and no rule"
        ),
    ],
)
def test_true_means_the_only_archive_if_no_rule_matches(policy, expected):
    assert verdict(annotated(DUE, archive="true"), policy=policy) == expected
    assert verdict(home=namespace_of(namespace(archive="true")), policy=policy) == expected


def test_problem_of_a_namespace_is_about_the_namespace():
    facts = decide(DUE, JOB, NOW, context(home=namespace_of(namespace(archive="nowhere")))).facts

    assert facts.problem_of == HOME.ref
    assert facts.problem == (
        "namespace ci: annotation ttlafterfinished.dev/archive: expected true or false, or one of the archives main,"
        " got 'nowhere'"
    )


def test_rule_that_cannot_be_evaluated_keeps_the_object():
    assert verdict(policy=archiving(when="object.spec.absent == 1")) == Reason.INVALID_POLICY


def test_rule_that_does_not_match_wants_no_archive():
    assert verdict(policy=archiving(when="outcome == 'failed'")) == ("expire", ago(30))


def test_first_rule_with_an_archive_counts_whatever_sets_the_ttl():
    policy = archiving(ttl="10s", archive={"to": "main"})

    assert verdict(policy=policy, archived=acknowledged(DUE, ago(40))) == ("expire", ago(30))


def test_limit_that_makes_an_object_due_early_waits_for_the_archive():
    policy, obj = archiving(maxCount=1), job(complete=ago(60), ttl=10**6)

    assert verdict(obj, policy=policy) == Reason.ARCHIVE_UNREAD


class TestTektonResults:
    RULE = kind_rule("taskruns.tekton.dev")
    POLICY = archiving(
        archives={"main": {"native": "tekton-results"}}, match={"kinds": ["taskruns.tekton.dev"]}, ttl="30s"
    )

    def run(self, completed_at=None, **annotations):
        done = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-03-14T15:00:00Z"}
        return {
            "apiVersion": "tekton.dev/v1",
            "kind": "TaskRun",
            "metadata": {
                **DUE["metadata"],
                "annotations": {f"results.tekton.dev/{name}": value for name, value in annotations.items()},
                "managedFields": [
                    self.write("tekton-results-watcher", "2026-03-14T15:01:00Z", *annotations),
                    self.write("kubectl", "2026-03-14T15:02:00Z", "other"),
                ],
            },
            "status": {"conditions": [done], "completionTime": "2026-03-14T15:00:00Z"},
        }

    def write(self, manager, at, *names):
        fields: dict[str, object] = {f"f:results.tekton.dev/{name}": {} for name in names}
        return {"manager": manager, "time": at, "fieldsV1": {"f:metadata": {"f:annotations": fields}}}

    @pytest.mark.parametrize(
        ("annotations", "expected"),
        [
            pytest.param({"stored": "true"}, ("wait", "16:01:00"), id="stored: grace from the write of the watcher"),
            pytest.param({"stored": "true", "record": "r"}, ("wait", "16:01:00"), id="both"),
            pytest.param({"stored": "false", "record": "r"}, None, id="not stored yet"),
            pytest.param({"stored": "True"}, None, id="another value"),
            pytest.param({"record": "r"}, ("wait", "16:10:00"), id="logs API: completion and the store deadline"),
            pytest.param({"record": ""}, None, id="empty record"),
            pytest.param({"log": "l"}, None, id="only a log"),
            pytest.param({}, None, id="nothing"),
        ],
    )
    def test_annotations_of_tekton_results_are_the_acknowledgement(self, annotations, expected):
        found = verdict(self.run(**annotations), self.RULE, policy=self.POLICY)

        if expected is None:
            assert found == Reason.NOT_ARCHIVED
        else:
            assert (found[0], found[1].strftime("%H:%M:%S")) == expected

    def test_newest_write_counts_if_no_entry_owns_the_annotation(self):
        obj = self.run(stored="true")
        obj["metadata"]["managedFields"] = [self.write("a", "2026-03-14T15:03:00Z"), self.write("b", "no time")]

        assert verdict(obj, self.RULE, policy=self.POLICY) == ("wait", NOW.replace(hour=16, minute=3, second=0))

    @pytest.mark.parametrize("at", ["2026-03-14T14:00:00Z", "2026-03-14T14:59:59Z"])
    def test_annotation_that_was_written_before_the_completion_is_no_acknowledgement(self, at):
        """Such as the annotation of an earlier run, with which a run was created again."""
        obj = self.run(stored="true", record="r")
        obj["metadata"]["managedFields"] = [
            self.write("kubectl-create", at, "stored", "record"),
            self.write("tekton-pipelines-controller", "2026-03-14T15:00:00Z"),
        ]

        assert verdict(obj, self.RULE, policy=self.POLICY) == Reason.NOT_ARCHIVED

    def test_annotation_that_the_watcher_writes_again_after_the_completion_is_the_acknowledgement(self):
        obj = self.run(stored="true")
        obj["metadata"]["managedFields"].append(self.write("kubectl-create", "2026-03-14T14:00:00Z", "stored"))

        assert verdict(obj, self.RULE, policy=self.POLICY) == ("wait", NOW.replace(hour=16, minute=1, second=0))

    def test_completion_of_a_run_without_a_completion_time_is_that_of_its_condition(self):
        obj = having(self.run(stored="true"), "status.completionTime", None)
        done = {**obj["status"]["conditions"][0], "lastTransitionTime": "2026-03-14T15:02:00Z"}
        early = having(obj, "status.conditions", [done])

        assert verdict(obj, self.RULE, policy=self.POLICY) == ("wait", NOW.replace(hour=16, minute=1, second=0))
        assert verdict(early, self.RULE, policy=self.POLICY) == Reason.NOT_ARCHIVED
        assert find_stored_at(having(obj, "status.conditions", [])) is None

    def test_object_without_managed_fields_is_kept(self):
        obj = having(self.run(stored="true"), "metadata.managedFields", None)

        assert verdict(obj, self.RULE, policy=self.POLICY) == Reason.NOT_ARCHIVED

    def test_annotation_cannot_opt_another_kind_in(self):
        policy = archiving(archives={"main": {"url": "file:///a"}, "tekton": {"native": "tekton-results"}})

        assert verdict(annotated(DUE, archive="tekton"), policy=policy) == Reason.INVALID_ARCHIVE


def test_pod_of_a_rule_for_jobs_needs_no_archive():
    obj = pod(containers=(ended(at=ago(60)),), ttl="30s")

    assert verdict(obj, POD) == ("expire", ago(30))


def test_grace_beyond_the_last_instant_keeps_the_object():
    policy = archiving(archive={"to": "main", "grace": "36500d"})
    at = NOW.replace(year=9990)

    assert verdict(policy=policy, archived=acknowledged(DUE, at))[0] == "wait"


class TestChildren:
    """A DELETE takes the children along: the one that is held, or not archived, keeps the object that is due."""

    UID = DUE["metadata"]["uid"]
    PODS = archiving(match={"kinds": ["pods"]})

    def decided(self, children, obj=DUE, policy=PODS, now=NOW):
        return decide(obj, JOB, now, Context(policy, HOME, children=children))

    def test_object_is_kept_until_its_children_are_read(self):
        decision = self.decided(UNREAD_CHILDREN)

        assert isinstance(decision, Ignore)
        assert decision.reason is Reason.CHILDREN_UNREAD

    def test_children_are_asked_for_only_when_the_object_is_due(self):
        assert isinstance(self.decided(UNREAD_CHILDREN, now=ago(31)), Wait)
        assert self.decided(UNREAD_CHILDREN, job(ttl=30)).reason is Reason.UNFINISHED

    def test_fact_about_the_children_of_another_object_does_not_count(self):
        assert self.decided(ChildrenFact("another", reason=None)).reason is Reason.CHILDREN_UNREAD

    @pytest.mark.parametrize("reason", [Reason.CHILD_HELD, Reason.CHILD_NOT_ARCHIVED, Reason.CHILDREN_UNREAD])
    def test_child_keeps_the_object_and_is_named(self, reason):
        decision = self.decided(ChildrenFact(self.UID, reason, problem="child Pod a: why"))

        assert (decision.reason, decision.facts.problem) == (reason, "child Pod a: why")

    def test_grace_of_the_last_child_is_awaited(self):
        fact = ChildrenFact(self.UID, reason=None, ready_at=later(60), moved_by="the grace of its child")
        decision, due = self.decided(fact), self.decided(fact, now=later(60))

        assert isinstance(decision, Wait)
        assert (decision.until, decision.facts.moved_by) == (later(60), "the grace of its child")
        assert isinstance(due, Expire)
        assert due.since == later(60)

    @pytest.mark.parametrize("ready_at", [None, ago(3600)])
    def test_object_goes_if_no_child_waits(self, ready_at):
        decision = self.decided(ChildrenFact(self.UID, reason=None, ready_at=ready_at))

        assert isinstance(decision, Expire)
        assert decision.since == ago(30)

    def test_children_that_stay_keep_nothing(self):
        policy = Policy.model_validate(
            {"rules": [{"name": "orphan", "match": {"kinds": ["jobs"]}, "ttl": "1s", "propagation": "Orphan"}]}
        ).of_kinds(shipped_kinds())
        decision = self.decided(UNREAD_CHILDREN, job(complete=ago(60)), policy)

        assert isinstance(decision, Expire)

    def test_deletion_at_a_deadline_takes_them_along_too(self):
        running = annotated(job(start=ago(60)), **{"active-deadline": "30s", "on-deadline": "delete"})
        decided = [
            decide_stop(running, JOB, NOW, Context(self.PODS, HOME, children=children))
            for children in (UNREAD_CHILDREN, ChildrenFact(self.UID, reason=None))
        ]

        assert decided[0].reason is Reason.CHILDREN_UNREAD
        assert isinstance(decided[1], Stop)
        stopped = decide_stop(
            annotated(running, **{"on-deadline": "stop"}), JOB, NOW, Context(self.PODS, HOME, children=UNREAD_CHILDREN)
        )
        assert isinstance(stopped, Stop)  # its children stay
