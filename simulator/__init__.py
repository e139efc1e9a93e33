"""Workloads and the fleet that serves them: a vLLM-like engine, a gateway, and pods that start slowly."""
