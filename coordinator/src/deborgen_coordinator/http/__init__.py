"""The face of the coordinator: the only place that knows Flask."""
