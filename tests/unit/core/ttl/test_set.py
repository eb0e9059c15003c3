"""`set`: options that are rejected without a request to the cluster."""

import pytest
from click.testing import CliRunner

from shared.cli.main import main


def test_set_rejects_both_outcome_options():
    result = CliRunner().invoke(main, ["set", "job/backup", "1h", "--failed", "--succeeded"])
    assert result.exit_code == 2
    assert "expected one of --succeeded and --failed, or neither, which means both" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["job/backup", "banana"], "expected seconds (3600), a duration such as 90s"),
        (["job/backup", "2026-01-02T03:04:05Z", "--failed"], "expected a duration or never for one outcome"),
    ],
)
def test_set_rejects_a_value_before_it_connects(words, message):
    result = CliRunner().invoke(main, ["set", *words, "--kubeconfig", "/does/not/exist"])
    assert result.exit_code == 2
    assert message in result.output
