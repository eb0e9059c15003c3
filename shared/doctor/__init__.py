"""The checks of `doctor`. Each check reads an installation and reports what is wrong and what fixes it."""
