"""The composition root: builds the adapters of a process from its settings, each when it is first needed."""
