"""`set` checks everything that it can before it connects to a cluster."""

import pytest
from click.testing import CliRunner

from shared.cli.main import main
from shared.cli.set_command import Wish
from shared.core.kinds.rule import Outcome
from tests.builders import JOB, job


def refused(*words):
    result = CliRunner().invoke(main, ["set", *words, "--kubeconfig", "/nowhere"])
    assert result.exit_code == 2, result.output
    return result.stderr


@pytest.mark.parametrize("value", ["0", "-1", "soon", "100000000000000000000"])
def test_set_refuses_a_deadline_that_cannot_be_read(value):
    assert "Invalid value for --deadline: expected " in refused("job/x", f"--deadline={value}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["job/x"], "expected KIND/NAME TIME"),
        (["--deadline", "1h"], "expected KIND/NAME TIME"),
        (["job", "x", "1h", "2h", "--deadline", "1h"], "expected KIND/NAME TIME"),
        (["job/x", "1h", "--unset"], "expected KIND/NAME TIME"),
        (["job/x", "--deadline", "1h", "--unset-deadline"], "got both"),
        (["job/x", "--on-deadline", "stop", "--unset-deadline"], "got both"),
        (["job/x", "--deadline", "1h", "--failed"], "a deadline has no outcome"),
        (["job/x", "soon", "--deadline", "1h"], "Invalid value for TIME"),
        (["job/x", "--deadline", "1h", "--on-deadline", "pause"], "Invalid value for '--on-deadline'"),
    ],
)
def test_set_refuses_what_contradicts_itself(words, message):
    assert message in refused(*words)


@pytest.mark.parametrize(
    "words",
    [
        ["job/x", "--deadline", "6h"],
        ["job", "x", "--deadline", "never"],
        ["job/x", "1h", "--deadline", "6h"],
        ["job", "x", "1h", "--deadline", "6h"],
        ["job/x", "--unset", "--unset-deadline"],
        ["job", "x", "--unset", "--deadline", "6h"],
        ["job/x", "--on-deadline", "delete"],
    ],
)
def test_set_accepts_a_deadline_beside_a_ttl_or_alone(words):
    result = CliRunner().invoke(main, ["set", *words, "--kubeconfig", "/nowhere"])
    assert result.exit_code == 1
    assert "/nowhere" in result.stderr


def test_wish_changes_the_ttl_and_the_deadline_alone():
    obj = job(ttl_failed="1h", active_deadline="6h")
    edit = Wish(unsets_ttl=True, outcome=Outcome.FAILED).find_edit(obj, JOB)
    assert edit is not None
    assert edit.annotations == {"ttl-failed": None}
    edit = Wish(unsets_deadline=True).find_edit(obj, JOB)
    assert edit is not None
    assert edit.annotations == {"active-deadline": None}
    assert Wish(unsets_deadline=True).find_edit(job(), JOB) is None
