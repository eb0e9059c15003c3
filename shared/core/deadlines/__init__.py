"""Active deadlines: how long an unfinished object may run, and what is done when that time is over."""
