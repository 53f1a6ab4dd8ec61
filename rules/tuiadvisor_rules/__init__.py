"""Rules: TOML files with a whitelisted condition on named metrics. Standard library only."""
