"""Whether and when an object finished, and why it has not."""
