"""The guided session: six patterns in order, from evidence and answers to tune, rescale, stop or keep.

`conduct.conduct` is the way in; `document.document` and `markdown.markdown` are the ways out.
"""
