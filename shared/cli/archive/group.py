"""`archive`: its commands, each imported when it is called."""

import click

from shared.cli.input.lazy_group import CommandPlace, LazyGroup

ARCHIVE_COMMANDS = {
    "ls": CommandPlace(
        "ls:ls",
        "List archived objects, one for each stored resource version, by kind, by the day of the finish, and by name.",
    ),
    "get": CommandPlace(
        "get:get", "Print an archived object as the API server sent it, with its managedFields and its status."
    ),
    "diff": CommandPlace("diff:diff", "Show how the live object differs from the archived one, as a unified diff."),
    "restore": CommandPlace(
        "restore:restore",
        "Create an archived object again, under its name, without the fields that the API server sets.",
    ),
    "init": CommandPlace(
        "identity:init", "Give an empty destination an id, which the installation remembers as that of its archive."
    ),
    "adopt": CommandPlace(
        "identity:adopt",
        "Use the destination of an archive as it is from now on, whatever the installation remembers.",
    ),
    "verify": CommandPlace("verify:verify", "Read archived objects, and check the digest and the identity of each."),
    "prune": CommandPlace(
        "prune:prune", "Delete the documents and logs that are older than `keep` of the archive, of all clusters."
    ),
    "lifecycle": CommandPlace(
        "prune:lifecycle", "Print the lifecycle rule with which the bucket of an archive deletes old documents itself."
    ),
}
"""Each command with its place, and the first paragraph of its help."""


@click.group(cls=LazyGroup, package="shared.cli.archive", places=ARCHIVE_COMMANDS)
def archive() -> None:
    """List, print, compare, check and restore archived objects.

    A policy names the archives. The installed policy counts, unless --policy or $TTL_POLICY names another. The
    credentials of a bucket come from the environment.
    """
