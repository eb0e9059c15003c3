"""The composition root: `build` makes the ports and use cases of a process from a frozen configuration."""
