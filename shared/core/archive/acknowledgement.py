"""The instant at which an archive acknowledged a document: the grace counts from there, so no clock may shorten it."""

from datetime import datetime, timedelta

from shared.core.values.objects import format_instant

CLOCK_DIFFERENCE_MAX = timedelta(minutes=5)
"""How far the clock of an archive may differ from the clocks of the API server and of this process."""


def find_acknowledged_at(
    stored_at: datetime,
    *,
    now: datetime,
    archived_at: datetime | None = None,
    finished_at: datetime | None = None,
) -> datetime:
    """Return the latest of the known instants: a clock that is behind, or was set back, does not end a grace early.

    A clock that is far ahead would keep the object silently, for as long as it is ahead. So its instant does not count.

    Args:
        stored_at: When the archive accepted the document, by the clock of the archive.
        now: The present, by the clock of this process.
        archived_at: When the archiver wrote the document, by its record; None for a foreign archiver.
        finished_at: When the object finished, for a foreign archiver; None if that is unknown.

    Raises:
        ValueError: The instant of the archive or of the record is more than `CLOCK_DIFFERENCE_MAX` ahead.
    """
    for what, at in (("the time in the archive", stored_at), ("archivedAt", archived_at)):
        if at is not None and at - now > CLOCK_DIFFERENCE_MAX:
            minutes = CLOCK_DIFFERENCE_MAX // timedelta(minutes=1)
            raise ValueError(
                f"{what}: expected an instant until now ({format_instant(now)}) or up to {minutes} minutes later, "
                f"got {format_instant(at)}; correct the clock of the archive or that of this process: then it "
                "counts, or the object is archived again"
            )
    return max(at for at in (stored_at, archived_at, finished_at) if at is not None)
