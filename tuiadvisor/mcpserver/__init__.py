"""The Model Context Protocol: an assistant's questions, answered with the documents of the commands."""
