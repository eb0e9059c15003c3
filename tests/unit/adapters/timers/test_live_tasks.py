"""What a process remembers of its tasks in Cloud Tasks."""

from shared.adapters.timers.cloudtasks.live_tasks import ENDED_SECONDS, LiveTasks
from shared.messages import Purpose, TimerKey

KEY = TimerKey("uid-1", Purpose.EXPIRE)


class Seconds:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_replaced_task_is_ended_while_a_delivery_of_it_may_be_in_flight():
    seconds = Seconds()
    live = LiveTasks(seconds)
    live.end("a")
    seconds.now = ENDED_SECONDS - 1
    assert live.is_ended("a")
    assert not live.is_ended("b")


def test_name_of_a_replaced_task_is_not_ended_once_another_process_may_have_taken_it():
    """Cloud Tasks frees a name after an hour: a task of this name would be acknowledged, and its timer lost."""
    seconds = Seconds()
    live = LiveTasks(seconds)
    live.end("a")
    seconds.now = ENDED_SECONDS
    assert not live.is_ended("a")


def test_task_that_is_set_again_is_not_ended():
    live = LiveTasks(Seconds())
    live.end("a")
    live.put(KEY, "a")
    assert not live.is_ended("a")
    assert live.get(KEY) == ("a",)
