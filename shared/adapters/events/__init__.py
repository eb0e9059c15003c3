"""CloudEvents over HTTP: receive, answer and publish events."""
