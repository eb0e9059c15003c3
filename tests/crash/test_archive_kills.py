"""kill -9 of `archive` at every await: nothing partial is visible, nothing is deleted unarchived, all is archived."""

import asyncio
import json
import os
import sys

import pytest

from tests.builders import ROOT
from tests.crash.killed_archival import FILES
from tests.s3_servers import required_s3_program, s3_server

pytestmark = pytest.mark.anyio

AWAITS_MIN = 20
"""Fewer awaits than this, and the test does not look where it should."""


@pytest.fixture(params=["folder", "s3"])
def archive(request, tmp_path):
    """The URL of an archive, and the environment that it needs."""
    if request.param == "folder":
        yield f"file://{tmp_path}", {}
        return
    with s3_server(required_s3_program()) as server:
        yield server.url("bucket", "killed"), server.environment


@pytest.mark.timeout(400)
@pytest.mark.parametrize("pause", [0.0, 0.004], ids=["at-once", "a-little-later"])
async def test_archive_killed_at_every_await_loses_nothing(archive, pause):
    url, environment = archive

    killed, whole = await kill_at_each_await(url, pause, environment)

    assert len(killed) > AWAITS_MIN
    for one in [*killed, whole]:
        found = one["found"]
        assert found["broken"] == [], one
        assert found["deleted"] == found["job"], one
        assert found["files"] == FILES if found["job"] else found["files"] < FILES, one
        assert one["completed"] == {"files": FILES, "job": True, "broken": [], "deleted": True}, one


async def kill_at_each_await(url, pause, environment):
    """What each killed process left, and what one did that came to its end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.crash.killed_archival", url, str(pause)),
        cwd=ROOT,
        env={**os.environ, **environment, "PYTHONPATH": "."},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-3000:]
    *killed, whole = (json.loads(line) for line in output.splitlines())
    assert all(one["killed"] for one in killed)
    assert not whole["killed"]
    return killed, whole
