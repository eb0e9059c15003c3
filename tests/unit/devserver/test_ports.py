"""Ports for servers: no two processes get the same one."""

import os
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
CHOOSE_FIRST = """
from shared.devserver import ports
ports._is_unused = lambda _: True  # whatever listens on this machine
ports.secrets.choice = lambda choices, left=iter(ports._PORTS): next(left)
print(ports.free_port())
"""


def locking_in(folder):
    """The environment of processes that share no locks with the rest of this machine."""
    return {**os.environ, "TMPDIR": str(folder)}


def test_processes_that_live_have_no_port_in_common(tmp_path):
    command = [sys.executable, "-c", CHOOSE]
    pipe, environment = subprocess.PIPE, locking_in(tmp_path)
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) for _ in range(3)]
    try:
        chosen = [not_none(process.stdout).readline().split() for process in processes]
    finally:
        for process in processes:
            process.communicate("")
    assert len({port for few in chosen for port in few}) == 3 * MANY


def test_port_of_an_ended_process_is_free_again(tmp_path):
    command = [sys.executable, "-c", CHOOSE_FIRST]
    chosen = [subprocess.check_output(command, env=locking_in(tmp_path)) for _ in range(2)]
    assert chosen[0] == chosen[1]


def test_one_process_gets_each_port_once():
    assert len({ports.free_port() for _ in range(MANY)}) == MANY
