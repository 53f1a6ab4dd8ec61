"""Metrics pages of serving processes (Prometheus text): read, set against each other, judged."""
