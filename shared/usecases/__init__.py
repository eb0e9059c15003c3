"""One async function per Knative function, over the ports."""
