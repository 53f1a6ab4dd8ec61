"""Numbers, lines, plots and words as text: what screens, reports and commands say alike."""
