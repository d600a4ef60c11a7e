"""Builds images with Podman, and keeps the images that the pool has built."""
