"""The replicated timer engine: timers as message schedules of NATS JetStream, for several processes."""
