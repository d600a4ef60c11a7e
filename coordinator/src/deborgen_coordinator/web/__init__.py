"""The dashboard: pages for people, on the operations that the API uses. It has no state besides its sessions."""
