"""Ports for servers: no two processes get the same one."""

import secrets
import subprocess
import sys

from shared.devserver import ports
from tests.builders import not_none

MANY = 300
CHOOSE = f"""
import random, sys
from shared.devserver import ports
ports.secrets.choice = random.Random(7).choice  # each process tries the same ports, in the same order
print(*(ports.free_port() for _ in range({MANY})), flush=True)
sys.stdin.read()
"""


def test_processes_that_live_have_no_port_in_common():
    command = [sys.executable, "-c", CHOOSE]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        chosen = [not_none(process.stdout).readline().split() for process in processes]
    finally:
        for process in processes:
            process.communicate("")
    assert len({port for few in chosen for port in few}) == 3 * MANY


def test_port_of_an_ended_process_is_free_again(monkeypatch):
    script = "from shared.devserver.ports import free_port; print(free_port())"
    port = int(subprocess.check_output([sys.executable, "-c", script]))
    monkeypatch.setattr(secrets, "choice", lambda _: port)
    assert ports.free_port() == port


def test_one_process_gets_each_port_once():
    assert len({ports.free_port() for _ in range(MANY)}) == MANY
