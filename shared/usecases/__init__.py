"""One async function for each Knative function or command, over the ports."""
