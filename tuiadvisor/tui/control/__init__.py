"""Keys, prompts, the frame around a page, and the application."""
