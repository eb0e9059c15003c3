"""What is decided about one object, why, and what the operator can do about it."""
