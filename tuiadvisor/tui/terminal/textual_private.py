"""The one import of a private module of Textual: what its compositor hands to `App._display`.

Why at all: Textual writes every row that changed and does not wait for the terminal; we write changed cells, and no
frame before the last one was taken (`frame_writer`). A screen of 1,024 ranks then costs 64 to 744 bytes a second on
80x24 and never queues on a line of 150 ms (tests/benchmarks/RESULTS.md). No public hook gives the cells of a frame.

A new Textual lacks something below: `tests/unit/test_textual_private.py` names it. Look up in its `_compositor.py` what
`Compositor.render_update` returns now and give it the two names here (rows of strips with a region; spans with chops).
Until then `WireApp._display` may hand everything to Textual's own (`super()._display`): right, only dearer on the line.
"""

from __future__ import annotations

from textual._compositor import ChopsUpdate, LayoutUpdate

__all__ = ["ChopsUpdate", "LayoutUpdate"]
