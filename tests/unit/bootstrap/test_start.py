"""The process that a function gets when its file is loaded."""

import pytest

from shared.adapters.config.settings import read_settings
from shared.bootstrap.build import build
from shared.bootstrap.config import read_config
from shared.bootstrap.process import Process
from shared.bootstrap.start import loading_for, start
from shared.errors import TtlError


def test_function_uses_the_process_of_the_program_that_loads_it():
    process = build(read_config(read_settings(environment={})))
    with loading_for(process):
        assert start(Process.access) is process


def test_missing_setting_of_a_need_is_raised_to_the_program():
    with loading_for(build(read_config(read_settings(environment={})))), pytest.raises(TtlError, match=r"^K_SINK: "):
        start(Process.published)
