"""How much of a delay, a pause or an excess one thing must explain to be named as its cause.

One number for all of them: what is named is what most of it goes away with.
"""

from __future__ import annotations

from typing import Final

MIN_COVER: Final = 0.8  # of it; TraceML: a cause covers 80 %
