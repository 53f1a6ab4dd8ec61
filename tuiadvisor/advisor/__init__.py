"""From metrics and rules to findings, a verdict and the RunView."""
