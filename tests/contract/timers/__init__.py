"""The contract of the timer engines."""
