"""Pipeline stages: balance, bubble, what holds them up, and a step re-simulated."""
