"""Timers as tasks of a queue of Google Cloud Tasks, which sends each to the function `timers` when it is due."""
