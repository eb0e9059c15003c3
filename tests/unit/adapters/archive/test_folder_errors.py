"""Which errors of a file system are about the whole archive, and which about one path."""

import errno

import pytest

from shared.adapters.archive.folder import convert_os_error
from shared.errors import TryLaterError

WHAT = "archive main: cannot look up file:///archive/v1/key"


@pytest.mark.parametrize(
    ("number", "is_outage"),
    [
        (errno.ENOSPC, True),
        (errno.EDQUOT, True),
        (errno.EFBIG, False),
        (errno.ESTALE, True),
        (errno.ENOTCONN, True),
        (errno.EMFILE, True),
        (errno.EIO, False),
        (errno.EBUSY, False),
    ],
)
def test_outage_of_a_volume_is_told_apart_from_an_error_about_one_path(number, is_outage):
    error = convert_os_error(OSError(number, "said"), WHAT, "/archive")
    assert isinstance(error, TryLaterError)
    assert str(error).startswith(f"{WHAT}: ")
    assert error.outage == (str(error).removeprefix(f"{WHAT}: ") if is_outage else "")
