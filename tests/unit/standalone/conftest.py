"""The async tests run in virtual time."""

from tests.virtual_time import anyio_backend  # noqa: F401 - a fixture
