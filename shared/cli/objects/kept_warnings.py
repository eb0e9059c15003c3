"""The warnings of `plan` about objects that are kept although they have a TTL."""

from collections.abc import Sequence

from shared.cli.objects.archive_report import describe_unarchived
from shared.cli.objects.own_deletion import find_unarchived_deletions
from shared.cli.objects.preview import Preview
from shared.cli.output.messages import warn
from shared.core.objects import ObjectRef, printable

_SHOWN = 5
"""The most objects that a message names."""


def warn_about_kept(preview: Preview) -> None:
    """Warn about objects that wait for their archive, or whose TTL a hold saved."""
    for text in describe_unarchived(preview.objects):
        warn(printable(text), fg="yellow")
    for text, refs in find_unarchived_deletions(preview.objects):
        warn(f"{len(refs):,} have a TTL field of their own: {printable(text)}: {name_some(refs)}", fg="yellow")
    if preview.saved:
        what = "with a saved TTL and no hold: the TTL has no effect until `kubectl ttl release` puts it back"
        warn(f"{len(preview.saved)} {what}: {name_some(preview.saved)}")


def name_some(refs: Sequence[ObjectRef]) -> str:
    """Name the first objects, as a message has room for."""
    return printable(", ".join(map(str, refs[:_SHOWN])) + (", ..." if len(refs) > _SHOWN else ""))
