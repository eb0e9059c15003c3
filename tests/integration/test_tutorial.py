"""docs/tutorial.md, as its reader types it: every command in order, against a real API server."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.builders import ROOT
from tests.snippets import TUTORIAL, Command, read_blocks, read_commands

pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None and not os.environ.get("CI"),
    reason="kubectl is not installed; in CI this is a failure",
)

COMMANDS = read_commands(read_blocks(TUTORIAL))
BEFORE = {"make", "export"}
"""What makes the program: here it is made already."""
PROGRAM = f"""#!/bin/sh
export PYTHONPATH={shlex.quote(str(ROOT))}
exec {shlex.quote(sys.executable)} -c 'from shared.cli.main import main; main(prog_name="ttl-after-finished")' "$@"
"""


@pytest.fixture(scope="module")
def controllers() -> list[str]:
    """Those that a namespace with Jobs needs."""
    return ["job-controller", "garbage-collector-controller", "namespace-controller"]


@pytest.fixture
def kubelet(api: Any) -> Iterator[None]:
    """End each Pod, as a node does whose containers succeed."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.2):
            for pod in api.call("GET", "/api/v1/namespaces/ttl-tutorial/pods")["items"]:
                if pod["status"].get("phase") == "Pending":
                    end(api, pod)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    done.set()
    thread.join()


def end(api: Any, pod: Any) -> None:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    (container,) = pod["spec"]["containers"]
    terminated = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
    about = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False, "restartCount": 0}
    status = {
        "phase": "Succeeded",
        "startTime": at,
        "containerStatuses": [{**about, "state": {"terminated": terminated}}],
    }
    api.call("PATCH", f"/api/v1/namespaces/ttl-tutorial/pods/{pod['metadata']['name']}/status", {"status": status})


class Reader:
    """Types commands into a shell; `run` gets a terminal of its own."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        programs = folder / "bin"
        programs.mkdir()
        for name in ("ttl-after-finished", "kubectl-ttl"):
            (programs / name).write_text(PROGRAM)
            (programs / name).chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TTL_")},
            "PATH": path,
            "KUBECONFIG": str(kubeconfig),
            "XDG_STATE_HOME": str(folder),
        }
        self.log = folder / "run.log"
        self.running: list[tuple[Command, subprocess.Popen[bytes]]] = []

    def type(self, command: Command) -> None:
        if [words[:1] for words in command.own] == [["run"]]:
            with self.log.open("wb") as log:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", f"exec {command.text}"], env=self.environment, stdout=log, stderr=log
                )
            self.running.append((command, process))
            return
        options: dict[str, Any] = {"env": self.environment, "timeout": 150, "capture_output": True, "text": True}
        done = subprocess.run(["/bin/sh", "-c", command.text], check=False, **options)
        printed = f"{done.stdout}{done.stderr}"
        assert done.returncode == 0, f"$ {command.text}\n{printed}"
        check_output(command, printed)

    def leave(self) -> None:
        """Ctrl-C in the other terminal."""
        for command, process in self.running:
            process.send_signal(signal.SIGINT)
            process.wait(30)
            check_output(command, self.log.read_text())

    def stop(self) -> None:
        for _, process in self.running:
            process.kill()
            process.wait()


def check_output(command: Command, printed: str) -> None:
    """Each line that the page shows came: its first word and its reasons, or the parts between its `…`."""
    lines = printed.splitlines()
    for shown in command.output:
        parts = [re.escape(part.strip()) for part in shown.split("…") if part.strip()]
        if not parts:
            continue
        if shown.startswith("…"):
            found = any(re.search(".*".join(parts), line) for line in lines)
        else:
            found = any(words_of(line) == words_of(shown) for line in lines)
        assert found, f"{command.block.place}: $ {command.text}\nshows {shown!r}, got:\n{printed}"


def words_of(line: str) -> tuple[str, list[str]]:
    """The first word, and the reasons such as `(no-ttl)`; digits are alike."""
    first = (line.split(maxsplit=1) or [""])[0]
    return re.sub(r"\d+", "0", first), re.findall(r"\(([a-z]+(?:-[a-z]+)+|held|expired)\)", line)


@pytest.mark.timeout(300)
def test_tutorial_works_in_order(server: Any, api: Any, kubelet: None, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(json.loads(server.kubeconfig.read_text())))
    reader = Reader(kubeconfig, tmp_path)
    try:
        for command in COMMANDS:
            if command.parts[0][0] not in BEFORE and ["demo"] not in list(command.own):
                reader.type(command)
        reader.leave()
    finally:
        reader.stop()
    deleted = re.findall(r' deleted .*object="Job ttl-tutorial/(\w+)"', reader.log.read_text())
    assert sorted(deleted) == ["hello", "report"]
