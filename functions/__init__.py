"""One Knative function a file: parse the event, call one use case, answer."""
