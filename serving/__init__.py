"""The edges: what Foreshock reads from and writes to a running system."""
