"""What may limit a run: one file a cause; `registry` names them in their order."""
