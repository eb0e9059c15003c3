"""The man page has each command, and groff reads it without a warning."""

import re
import shutil
import subprocess

import pytest

from shared.cli.main import COMMANDS
from tests.reference.cli import EXIT_CODES
from tests.reference.manpage import FOLDER, PAGE, render

PAGES = render()


def test_man_page_has_each_command_and_each_exit_code():
    sections = set(re.findall(r"^\.SS (.*)$", PAGES[PAGE], re.MULTILINE))
    assert {name.replace("-", "\\-") for name in COMMANDS} <= sections
    assert all(
        meaning.split("`")[0].split(".")[0] in PAGES[PAGE].replace("\\-", "-") for meaning in EXIT_CODES.values()
    )


@pytest.mark.verify
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_reads_the_man_page_without_a_warning():
    command = ["groff", "-man", "-Tutf8", "-ww", "-rLL=78n", str(FOLDER / PAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    assert "EXIT STATUS" in re.sub(r".\x08", "", done.stdout)
