"""The read-only page of `ui`, and the JSON document that it shows."""
