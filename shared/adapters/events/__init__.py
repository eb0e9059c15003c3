"""CloudEvents over HTTP: received, answered, and published."""
