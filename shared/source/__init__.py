"""The event source of this project: one watch on each enabled kind, in `run` or in a Knative ContainerSource."""
