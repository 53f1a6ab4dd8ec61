"""Other tools' recordings as ours."""
