"""Convert errors of a file system into the errors of `shared.errors`.

A volume that is full or away is an outage of the archive. Every other error may be about one path.
"""

import errno

from shared.errors import ForbiddenError, PermanentError, TryLaterError, TtlError

_RETRY_SECONDS = 30.0  # until a volume that was full is tried again, at the least

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EROFS)
_PERMANENT = (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EXDEV, errno.EEXIST, errno.EINVAL)
_AWAY = (
    errno.ESTALE,
    errno.ENOTCONN,
    errno.ECONNREFUSED,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ETIMEDOUT,
    errno.ENODEV,
    errno.ENXIO,
    errno.ESHUTDOWN,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
)
_WITHOUT_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def convert_os_error(error: OSError, what: str, root: str) -> TtlError:
    """Return the error for a failed system call.

    Args:
        error: What the operating system answered.
        what: The beginning of the message: the archive, and what was tried.
        root: The folder of the archive.
    """
    said = error.strerror or type(error).__name__
    match error.errno:
        case number if number in _FULL:
            problem = f"the volume is full or a quota is reached ({said}); free space or enlarge the volume"
            outage = problem if error.errno != errno.EFBIG else ""  # of one file
            return TryLaterError(f"{what}: {problem}", retry_after_seconds=_RETRY_SECONDS, outage=outage)
        case number if number in _REFUSED:
            return ForbiddenError(f"{what}: {said}; expected that this account may read and write {root}")
        case number if number in _WITHOUT_LINKS:
            return PermanentError(
                f"{what}: {said}; expected a file system with hard links, and the right to make them in {root}; use "
                "another volume or a bucket"
            )
        case errno.ENAMETOOLONG:
            return PermanentError(
                f"{what}: {said}: a file system takes names of at most 255 bytes; use a bucket for these objects"
            )
        case errno.ENOENT:
            return PermanentError(
                f"{what}: {said}; expected the folder {root}, or its parent; mount or make the folder"
            )
        case number if number in _PERMANENT:
            return PermanentError(f"{what}: {said}; expected only folders and files of the archive in {root}")
        case _:
            problem = f"{said}; check the volume of {root}"
            return TryLaterError(f"{what}: {problem}", outage=problem if error.errno in _AWAY else "")
