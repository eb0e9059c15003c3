"""Traces: the span in which this process works, and OpenTelemetry, which is imported only if an endpoint is set."""
