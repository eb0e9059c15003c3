"""Run uvicorn with the engine on Cloud Tasks, connected to our server: its address, then the arguments of uvicorn."""

import sys

import uvicorn.main

from shared.adapters.timers.cloudtasks.engine import CloudTasksTimers
from tests.builders import not_none
from tests.tasks_server import TasksServer

not_none(CloudTasksTimers.__init__.__kwdefaults__)["connect"] = TasksServer(address=sys.argv.pop(1)).connect
uvicorn.main.main()
