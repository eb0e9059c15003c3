"""What can deny or delay the DELETE of a due object: brake, breaker, recreation, budget, and their shared state."""
