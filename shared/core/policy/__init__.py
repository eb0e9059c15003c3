"""Policies: which objects each rule matches, and what the rule sets for them."""
