"""A reader of the documentation: types its commands into a shell, against the test's own API server."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.builders import ROOT
from tests.snippets import Command, read_blocks, read_commands

needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None and not os.environ.get("CI"),
    reason="kubectl is not installed; in CI this is a failure",
)
CONTROLLERS = [
    f"{name}-controller"
    for name in ("job", "garbage-collector", "namespace", "serviceaccount", "clusterrole-aggregation")
]
"""Those that a namespace with Jobs, and an installation, need."""

BEFORE = {"make", "export", "git"}
"""Commands that build the program: in the tests it is already built."""

PROGRAM = f"""#!/bin/sh
export PYTHONPATH={shlex.quote(str(ROOT))}
exec {shlex.quote(sys.executable)} -c 'from shared.cli.main import main; main(prog_name="ttl-after-finished")' "$@"
"""
START_SECONDS = 60


class Reader:
    """Types commands into a shell; `run` gets a terminal of its own.

    Args:
        kubeconfig: Of the API server.
        folder: Where the reader is.
    """

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        programs = folder / "bin"
        programs.mkdir()
        for name in ("ttl-after-finished", "kubectl-ttl"):
            (programs / name).write_text(PROGRAM)
            (programs / name).chmod(0o755)
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TTL_")},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(kubeconfig),
            "XDG_STATE_HOME": str(folder),
        }
        self.running: list[tuple[Command, subprocess.Popen[bytes], Path]] = []

    def type(self, command: Command, exit_codes: tuple[int, ...] = (0,)) -> None:
        """Run a command, and compare what it prints with what the page shows."""
        if [words[:1] for words in command.own] == [["run"]]:
            self._start(command)
            return
        code, printed = self.shell(command.text)
        assert code in exit_codes, f"{command.block.place}: $ {command.text}\nended with {code}:\n{printed}"
        if code == 0:
            check_output(command, printed)

    def shell(self, text: str) -> tuple[int, str]:
        """The exit code, and what is printed."""
        options: dict[str, Any] = {"timeout": 150, "capture_output": True, "text": True}
        done = subprocess.run(["/bin/sh", "-c", text], env=self.environment, cwd=self.folder, check=False, **options)
        return done.returncode, f"{done.stdout}{done.stderr}"

    def leave(self) -> str:
        """Ctrl-C in each other terminal; what was printed there."""
        logs = []
        for command, process, log in self.running:
            process.send_signal(signal.SIGINT)
            process.wait(30)
            check_output(command, log.read_text())
            logs.append(log.read_text())
        return "".join(logs)

    def stop(self) -> None:
        """End what still runs."""
        for _, process, _ in self.running:
            process.kill()
            process.wait()

    def _start(self, command: Command) -> None:
        log = self.folder / f"run-{len(self.running)}.log"
        text = f"exec {command.text}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["/bin/sh", "-c", text], env=self.environment, cwd=self.folder, stdout=file, stderr=file
            )
        self.running.append((command, process, log))
        deadline = time.monotonic() + START_SECONDS
        while not log.stat().st_size:  # before its first words, Ctrl-C may find no handler
            assert process.poll() is None, f"{command.text} ended at once"
            assert time.monotonic() < deadline, f"{command.text} printed nothing within {START_SECONDS} s"
            time.sleep(0.1)


@contextmanager
def reading(server: Any, api: Any, folder: Path) -> Iterator[Reader]:
    """A reader in a folder with the manifests, on a cluster whose Pods end at once."""
    shutil.copytree(ROOT / "knative", folder / "knative")
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_bytes(server.kubeconfig.read_bytes())
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.2):
            try:
                end_pods(api)
            except urllib.error.HTTPError as error:
                if error.code not in (404, 409):  # deleted, or changed, in the meantime
                    raise

    thread = threading.Thread(target=work)
    thread.start()
    reader = Reader(kubeconfig, folder)
    try:
        yield reader
    finally:
        reader.stop()
        done.set()
        thread.join()


def commands_of(page: Path) -> list[Command]:
    """The commands of a page, those aside that make the program."""
    return [command for command in read_commands(read_blocks(page)) if command.parts[0][0] not in BEFORE]


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
            found = any(_words_of(line) == _words_of(shown) for line in lines)
        assert found, f"{command.block.place}: $ {command.text}\nshows {shown!r}, got:\n{printed}"


def end_pods(api: Any) -> None:
    """End each Pod that is pending, as a node does: with a failure where its command is `false`; `tail` goes on."""
    for pod in api.call("GET", "/api/v1/pods")["items"]:
        is_long = pod["spec"]["containers"][0].get("command", [""])[0] == "tail"
        if pod["status"].get("phase") == "Pending" and not is_long:
            _end(api, pod)


def _end(api: Any, pod: Any) -> None:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    container, metadata = pod["spec"]["containers"][0], pod["metadata"]
    failed = "false" in container.get("command", ())
    terminated = {"exitCode": int(failed), "reason": "Error" if failed else "Completed"}
    about = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False, "restartCount": 0}
    ended = {**about, "state": {"terminated": {**terminated, "startedAt": at, "finishedAt": at}}}
    status = {"phase": "Failed" if failed else "Succeeded", "startTime": at, "containerStatuses": [ended]}
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    api.call("PATCH", path, {"status": status})


def _words_of(line: str) -> tuple[str, list[str]]:
    """The first word, digits aside, and the reasons such as `(no-ttl)`."""
    first = (line.split(maxsplit=1) or [""])[0]
    return re.sub(r"\d+", "0", first), re.findall(r"\(([a-z]+(?:-[a-z]+)+|held|expired)\)", line)
