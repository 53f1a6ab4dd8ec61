"""How a job scales: read a table of measured sizes, fit laws, predict with intervals, decide.

`analysis.analyse` is the way in; `document.document` and `text.text` are the two ways out. One run alone, without a
second size: `onerun.one_run`, `onerundoc`.
"""
