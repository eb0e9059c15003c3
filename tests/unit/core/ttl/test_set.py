"""`set`: options that are rejected without a request to the cluster."""

from click.testing import CliRunner

from shared.cli.main import main


def test_set_rejects_both_outcome_options():
    result = CliRunner().invoke(main, ["set", "job/backup", "1h", "--failed", "--succeeded"])
    assert result.exit_code == 2
    assert "expected one of --succeeded and --failed, or neither, which means both" in result.output
