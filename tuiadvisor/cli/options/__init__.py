"""Options that several commands share, and the values people type for them."""
