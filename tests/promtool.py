"""The program `promtool`, which is beside the test servers or on the PATH."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.devserver.real_servers import find_program

PROMTOOL = find_program("promtool") or shutil.which("promtool")

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None and (not os.environ.get("CI") or bool(os.environ.get("TESTS_WITHOUT_HELM"))),
    reason="promtool is not installed; in CI this is a failure, unless TESTS_WITHOUT_HELM is set",
)


def check_rules(groups: Any, folder: Path) -> str:
    """Check rule groups with all lints; return the problems, empty if there are none."""
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    return _promtool("check", "rules", "--lint=all", "--lint-fatal", str(folder / "rules.yaml"))


def run_tests(groups: Any, tests: Any, folder: Path) -> str:
    """Run unit tests of rule groups; return the failures, empty if all pass.

    Args:
        groups: The groups of rules.
        tests: The `tests` of a file for `promtool test rules`.
        folder: Where the files are written.
    """
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    file = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(file))
    return _promtool("test", "rules", str(folder / "tests.yaml"))


def _promtool(*arguments: str) -> str:
    assert PROMTOOL, "promtool is not installed"
    done = subprocess.run([str(PROMTOOL), *arguments], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr
