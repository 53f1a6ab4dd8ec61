"""Agents, hosts, ranks and devices: who takes part, and what their machines say beside the steps."""
