"""One Knative function per file: parse, call one use case, answer."""
