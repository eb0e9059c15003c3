"""What can deny or delay a due deletion: brake, breaker, recreation check, budget, and their shared state."""
