"""The checks of `doctor`. Each check reads an installation and reports a problem with the command that fixes it."""
