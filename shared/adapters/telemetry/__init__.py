"""Telemetry: structured logs and Prometheus metrics."""
