"""Policies: which objects a rule matches, and what the rule sets for them."""
