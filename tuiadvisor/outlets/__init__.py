"""What leaves a running session for other tools: Prometheus metrics, notices of findings."""
