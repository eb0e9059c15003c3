"""One async function or class for each Knative function or command; `<name>_<part>.py` is a part of that use case."""
