"""`set`: what is refused before a cluster is asked."""

from click.testing import CliRunner

from shared.cli.main import main


def test_one_outcome_or_both_but_not_both_named():
    result = CliRunner().invoke(main, ["set", "job/backup", "1h", "--failed", "--succeeded"])
    assert result.exit_code == 2
    assert "expected one of --succeeded and --failed, or neither, which means both" in result.output
