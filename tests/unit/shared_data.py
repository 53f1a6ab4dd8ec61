"""Where the public data sets lie, for tests that compare with published answers; they skip without them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "data"
SHARED = Path(os.environ.get("TUIADVISOR_SHARED_DATA", BESIDE_THE_REPOSITORY))

needs_data = pytest.mark.skipif(
    not SHARED.is_dir(), reason="no public data sets (set TUIADVISOR_SHARED_DATA to their folder)"
)
