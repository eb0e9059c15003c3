"""The event source of this project: a watch on each enabled kind, as part of `run` or as a Knative ContainerSource."""
