"""The whole system in one process: runner, broker, Triggers, and the Lease of the leader."""
