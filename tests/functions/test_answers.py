"""The answer of each function to a valid event, and the status for each error."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.adapters.config.policy_file import PolicyFile
from shared.adapters.events.cloudevents import TICK
from shared.core.kinds.rule import Catalogue
from shared.core.values.timing import horizon
from shared.errors import EventError, ForbiddenError, PermanentError, TryLaterError
from shared.messages import ObjectDeleted, ObjectStopped, ObjectWarned, SweepStep, TimersSet
from tests.builders import ago, annotated, having, job, kind_rule, later, pod, stamp
from tests.functions.wire import CONTINUE, DUE, FIRED, REPORTED, SET, TAKEN, binary, structured, timer

pytestmark = pytest.mark.anyio

MODES = pytest.mark.parametrize("written", [binary, structured], ids=["binary", "structured"])


@MODES
async def test_schedule_replies_with_the_timer(functions, config, written):
    answer = await functions.post("schedule", *written(REPORTED, DUE))

    assert answer.status == 200
    event = answer.event()
    assert (event.type, event.source) == (SET, "ttl-after-finished/schedule")
    assert event.subject == DUE["metadata"]["uid"]
    (wanted,) = TimersSet.model_validate_json(event.data).timers
    assert wanted.due_at == ago(30)
    assert wanted.ref.name == DUE["metadata"]["name"]
    assert config.cluster.calls == []


@MODES
@pytest.mark.parametrize(
    "obj",
    [
        job(),
        annotated(job(complete=ago(60)), ttl="never"),
        job(complete=ago(60), ttl="never"),
        {**DUE, "kind": "CronJob"},
    ],
    ids=["unfinished", "never", "unreadable-ttl", "another-kind"],
)
async def test_schedule_without_a_timer_answers_an_empty_204(functions, written, obj):
    answer = await functions.post("schedule", *written(REPORTED, obj))

    assert (answer.status, answer.body) == (204, b"")


async def test_same_object_gets_the_same_reply_id(functions):
    first = await functions.post("schedule", *binary(REPORTED, DUE, id="a"))
    second = await functions.post("schedule", *structured(REPORTED, DUE, id="b"))

    assert first.event().id == second.event().id


async def test_reply_about_an_object_in_any_script_can_be_read(functions):
    uid = 'ü"日本 100%'
    answer = await functions.post("schedule", *binary(REPORTED, job(complete=ago(60), ttl=30, uid=uid)))

    assert answer.event().subject == uid
    assert answer.headers["ce-subject"].isascii()


@MODES
async def test_timers_stores_the_timer_and_answers_an_empty_204(functions, config, written):
    answer = await functions.post("timers", *written(SET, {"timers": [timer()]}))

    assert (answer.status, answer.body) == (204, b"")
    assert [each.due_at for each in config.timers.pending.values()] == [ago(30)]


async def test_timers_accepts_a_whole_page(functions, config):
    wanted = [timer(uid=f"uid-{number}") for number in range(500)]

    assert (await functions.post("timers", *binary(SET, {"timers": wanted}))).status == 204
    assert len(config.timers.pending) == 500


@MODES
async def test_expire_deletes_and_replies(functions, config, written):
    config.cluster.put(DUE)

    answer = await functions.post("expire", *written(FIRED, timer()))

    assert answer.status == 200
    event = answer.event()
    assert event.type == "dev.ttlafterfinished.object.deleted"
    deleted = ObjectDeleted.model_validate_json(event.data)
    assert (deleted.due_at, deleted.lateness_seconds, deleted.outcome) == (ago(30), 30.0, "succeeded")
    assert config.cluster.names == set()


async def test_expire_with_a_raised_ttl_replies_with_a_timer(functions, config):
    config.cluster.put(job(complete=ago(60), ttl=90))

    answer = await functions.post("expire", *binary(FIRED, timer()))

    (wanted,) = TimersSet.model_validate_json(answer.event().data).timers
    assert wanted.due_at == later(30)
    assert config.cluster.deleted == []


async def test_expire_of_an_absent_object_answers_an_empty_204(functions):
    answer = await functions.post("expire", *binary(FIRED, timer()))

    assert (answer.status, answer.body) == (204, b"")


RUNNING = annotated(having(job(), "status.startTime", stamp(ago(60))), active_deadline="30s")
ENFORCE = timer(purpose="enforce")


@MODES
async def test_enforce_stops_and_replies(functions, config, written):
    config.cluster.put(RUNNING)

    answer = await functions.post("enforce", *written(FIRED, ENFORCE))

    assert answer.status == 200
    event = answer.event()
    assert (event.type, event.subject) == ("dev.ttlafterfinished.object.stopped", RUNNING["metadata"]["uid"])
    stopped = ObjectStopped.model_validate_json(event.data)
    assert (stopped.due_at, stopped.lateness_seconds, stopped.stops) == (ago(30), 30.0, 1)
    assert [call.verb for call in config.cluster.calls] == ["get", "patch"]
    await functions.process.end()  # as when the service is scaled to zero
    assert [(one["action"], one["reason"]) for one in config.cluster.journaled] == [("Stop", "DeadlineExceeded")]
    again = await functions.post("enforce", *written(FIRED, ENFORCE))
    assert (again.status, again.body) == (204, b"")


async def test_enforce_with_a_raised_deadline_replies_with_a_timer_of_its_purpose(functions, config):
    config.cluster.put(annotated(RUNNING, active_deadline="90s"))

    answer = await functions.post("enforce", *binary(FIRED, ENFORCE))

    (wanted,) = TimersSet.model_validate_json(answer.event().data).timers
    assert (wanted.due_at, wanted.purpose) == (later(30), "enforce")


async def test_enforce_deletes_and_replies_if_the_object_asks_for_that(functions, config):
    config.cluster.put(annotated(RUNNING, on_deadline="delete"))

    answer = await functions.post("enforce", *binary(FIRED, ENFORCE))

    assert answer.event().type == "dev.ttlafterfinished.object.deleted"
    assert config.cluster.names == set()


async def test_refused_stop_is_a_422(functions, config):
    config.cluster.put(RUNNING)
    config.cluster.fail("patch", ForbiddenError("jobs is forbidden"))

    assert (await functions.post("enforce", *binary(FIRED, ENFORCE))).status == 422


async def test_schedule_replies_with_a_timer_for_the_deadline_of_a_running_object(functions):
    answer = await functions.post("schedule", *binary(REPORTED, annotated(RUNNING, active_deadline="90s")))

    (wanted,) = TimersSet.model_validate_json(answer.event().data).timers
    assert (wanted.due_at, wanted.purpose) == (later(30), "enforce")


async def test_finished_and_running_objects_are_left_to_the_function_of_their_purpose(functions, config):
    config.cluster.put(RUNNING)
    assert (await functions.post("expire", *binary(FIRED, timer()))).status == 204
    config.cluster.put(DUE)
    assert (await functions.post("enforce", *binary(FIRED, ENFORCE))).status == 204
    assert config.cluster.deleted == []


@MODES
async def test_sweep_deletes_missed_objects_and_ends_with_an_empty_204(functions, config, written):
    config.cluster.put(DUE)

    answer = await functions.post("sweep", *written(TICK))

    assert (answer.status, answer.body) == (204, b"")
    assert config.cluster.names == set()
    assert [type(message) for message in config.publisher.published] == [ObjectDeleted]


async def test_sweep_replies_with_its_next_step_after_its_time_limit(functions, config):
    for number in range(3):
        config.cluster.put(job(name=f"job-{number}", uid=f"uid-{number}"))
    config.cluster.page_size = 1
    config.cluster.on_list = lambda: config.clock.advance(15)

    answer = await functions.post("sweep", *binary(CONTINUE, {"kinds": ["batch/v1/Job"], "sweepId": "s"}))

    event = answer.event()
    assert event.type == CONTINUE
    step = SweepStep.model_validate_json(event.data)
    assert (step.kinds[0], bool(step.continue_token), step.step) == ("batch/v1/Job", True, 1)
    assert (await functions.post("sweep", *binary(CONTINUE, event.data))).status in (200, 204)


async def test_sweep_skips_unknown_kinds(functions, config):
    answer = await functions.post("sweep", *binary(CONTINUE, {"kinds": ["Pod", "", "x/v9/Y"], "sweepId": "s"}))

    assert (answer.status, answer.body) == (204, b"")
    assert config.cluster.calls == []


# Errors of the environment


async def test_sweep_answers_503_with_retry_after_while_the_api_server_is_busy(functions, config):
    for verb in ("get", "list", "list-metadata"):
        config.cluster.fail(verb, TryLaterError("the API server answered 429", retry_after_seconds=6.2))

    answer = await functions.post("sweep", *binary(*TAKEN["sweep"]))

    assert answer.status == 503
    assert "429" in answer.text
    assert int(answer.headers["retry-after"]) >= 1


async def test_expire_replies_with_a_retry_timer_while_the_api_server_is_busy(functions, config):
    config.cluster.fail("get", TryLaterError("the API server answered 429", retry_after_seconds=6.2))
    kind, data = TAKEN["expire"]

    for attempts in (1, 2):
        answer = await functions.post("expire", *binary(kind, data))

        assert answer.status == 200
        (timer,) = TimersSet.model_validate_json(answer.event().data).timers
        assert timer.attempts == attempts
        data = timer.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize(
    "attributes",
    [{}, {"task": "a-task", "scheduledat": stamp(ago(30))}],
    ids=["of-the-broker", "as-a-task"],
)
async def test_timers_without_cloud_tasks_refuses_a_fired_timer(functions, config, attributes):
    answer = await functions.post("timers", *binary(FIRED, timer(), purpose="expire", **attributes))

    assert answer.status == 422
    assert "expected dev.ttlafterfinished.timer.set" in answer.text
    assert config.timers.pending == {}
    assert config.publisher.published == []


async def test_timers_on_a_full_disk_answers_503(functions, config):
    config.timers.failure = TryLaterError("disk full")

    answer = await functions.post("timers", *binary(*TAKEN["timers"]))

    assert (answer.status, answer.text, answer.headers["retry-after"]) == (503, "disk full\n", "1")


async def test_sweep_ends_while_no_timer_can_be_set(functions, config):
    config.cluster.put(job(complete=ago(60), ttl=90))
    config.publisher.failure = TryLaterError("no answer")

    assert (await functions.post("sweep", *binary(TICK))).status == 204


HORIZON = horizon(timedelta(minutes=10))


async def test_timers_stores_no_timer_due_beyond_the_horizon(functions, config):
    due = [later(seconds) for seconds in (HORIZON.total_seconds() + 60, HORIZON.total_seconds() - 60, 1e10)]
    asked = [timer(uid=f"uid-{number}", due_at=due_at.isoformat()) for number, due_at in enumerate(due)]

    answer = await functions.post("timers", *binary(SET, {"timers": asked}))

    assert answer.status == 204
    assert [uid for uid, _ in config.timers.pending] == ["uid-1"]
    assert [one.reason for one in config.telemetry.records] == ["left-to-sweep"] * 2


@pytest.mark.parametrize("error", [PermanentError("no"), ForbiddenError("jobs is forbidden")], ids=["4xx", "403"])
async def test_permanent_error_is_a_422(functions, config, error):
    config.cluster.put(DUE)
    config.cluster.fail("delete", error)

    answer = await functions.post("expire", *binary(FIRED, timer()))

    assert (answer.status, answer.text) == (422, f"{error}\n")
    assert config.cluster.deleted == []


async def test_event_error_of_a_function_keeps_its_status(functions, config):
    config.timers.failure = EventError("ref: expected Unicode text", status=400)

    assert (await functions.post("timers", *binary(*TAKEN["timers"]))).status == 400


async def test_bug_is_a_500_without_details(functions, config):
    config.timers.failure = ZeroDivisionError("secret detail")

    answer = await functions.post("timers", *binary(*TAKEN["timers"]))

    assert answer.status == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


async def test_function_uses_the_enabled_kinds_only(functions, config):
    functions.use(replace(config, catalogue=Catalogue((kind_rule("pod"),))))
    config.cluster.put(DUE)
    config.cluster.put(pod(name="stays", ttl="1h"))

    answers = [await functions.post(name, *binary(*TAKEN[name])) for name in ("schedule", "expire", "sweep")]

    assert [answer.status for answer in answers] == [204, 204, 204]
    assert config.cluster.deleted == []


async def test_function_works_after_a_failure(functions, config):
    config.timers.failure = RuntimeError("bug")
    await functions.post("timers", *binary(*TAKEN["timers"]))
    config.timers.failure = None

    assert (await functions.post("timers", *binary(*TAKEN["timers"]))).status == 204


WARN = {"rules": [{"name": "ci", "match": {"kinds": ["jobs"]}, "ttl": "1h", "warn": "1h"}]}


@MODES
async def test_expire_warns_and_replies(server, config, written, tmp_path, sent_events):
    file, done = tmp_path / "policy.yaml", job(complete=ago(60))
    file.write_text(json.dumps(WARN))
    functions = server.use(replace(config, policies=PolicyFile(file, config.kinds, pytest.fail)))
    config.cluster.put(done)

    answer = await functions.post("expire", *written(FIRED, timer(purpose="warn")))

    event = answer.event()
    assert (answer.status, event.type) == (200, ObjectWarned.type)
    assert ObjectWarned.model_validate_json(event.data).due_at == later(3540)
    assert sent_events.types == {ObjectWarned.type: 1}
    assert [call.verb for call in config.cluster.calls] == ["get"]
