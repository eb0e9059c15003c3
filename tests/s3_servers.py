"""The real S3 server for the tests that need one."""

import os
from pathlib import Path

import pytest

from shared.devserver.real_servers import ASSETS_VARIABLE
from shared.devserver.s3_server import S3_PROGRAM, find_s3_server
from tests.builders import not_none


def required_s3_program() -> Path:
    """The binary; without it the test is skipped, and in CI it fails."""
    program = find_s3_server()
    if program is None:
        reason = f"no {S3_PROGRAM} in ${ASSETS_VARIABLE} or /usr/local/kubebuilder/bin"
        pytest.fail(f"{reason}, which CI must have") if os.getenv("CI") else pytest.skip(reason)
    return not_none(program)
