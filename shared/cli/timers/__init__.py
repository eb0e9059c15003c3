"""The command group `timers`: pending timers are listed, moved and copied."""
