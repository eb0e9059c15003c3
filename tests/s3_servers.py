"""The real S3 server for the tests that need one."""

from pathlib import Path

from shared.devserver.s3_server import S3_PROGRAM, find_s3_server
from tests.required import PLACES, required


def required_s3_program() -> Path:
    """The binary; without it the test is skipped, and in CI it fails."""
    return required(find_s3_server(), f"no {S3_PROGRAM} in {PLACES}")
