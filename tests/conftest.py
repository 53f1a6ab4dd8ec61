"""Shared by all tests: helpers importable by name, and the folder of real traces where it exists."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
