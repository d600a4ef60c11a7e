"""The container engine Podman."""
