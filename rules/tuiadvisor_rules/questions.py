"""Questions of the guided session: what no probe can measure, one TOML file a pattern.

In: rules/catalog/questions/*.toml.  Out: Question. A question says whom it concerns (`when`, on named evidence), what
each answer means, and the one command that would measure it instead of asking.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor_rules.condition import Condition, RuleError, nearest
from tuiadvisor_rules.loader import (
    DECISIONS,
    LAYERS,
    LENSES,
    MAX_FILE_BYTES,
    PATTERNS,
    SITUATIONS,
    catalog_dir,
    read_document,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS: Final = ("yes_no", "number", "choice", "text")
# Ids of ours for the two lists that have none of their own.
IMBALANCES: Final = (
    "static-partition",
    "variable-length",
    "uneven-device",
    "slow-host",
    "uneven-stages",
    "pipeline-bubble",
)
PITFALLS: Final = (
    "compute-on-memory-bound",
    "free-communication",
    "no-profile",
    "linear-scaling",
    "trusting-utilization",
    "judging-warmup",
    "different-work",
    "blaming-the-waiting",
)
COVERS: Final = (*SITUATIONS, *IMBALANCES, *PITFALLS)
# Evidence that `when` may name: what every view of a run can offer.
EVIDENCE: Final = (
    "num_devices",
    "num_hosts",
    "num_runs",
    "num_sizes",
    "step_s",
    "data_wait_share",
    "comm_exposed_share",
    "transfer_share",
    "skew_share",
    "compute_share",
    "checkpoint_share",
    "other_share",
    "pipeline_idle_share",
    "warmup_s",
    "num_stragglers",
    "num_stages",
    "has_gpu",
    "goodput",
    "host_busy",
    "iowait",
    "device_busy",
    "device_memory",
    "alloc_retries",
)
_KEYS: Final = {
    "id", "covers", "lens", "layer", "ask", "kind", "choices", "unit", "when", "means", "suggests", "measure",
    "favours",
}  # fmt: skip
MAX_QUESTIONS: Final = 500


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to ask."""

    id: str
    pattern: str
    covers: tuple[str, ...]  # rows of the tables it stands for
    lens: str
    layer: str
    ask: str
    kind: str
    choices: tuple[str, ...]
    unit: str
    when: Condition | None  # None: always worth asking
    means: dict[str, str]  # answer -> what follows from it
    suggests: dict[str, str]  # answer -> tune, rescale, stop or keep: a hypothesis, never the decision
    measure: str  # the one command that would answer it
    favours: dict[str, tuple[str, ...]]  # answer -> "+words of an action" it speaks for, "-words" against

    def concerns(self, evidence: dict[str, object]) -> bool:
        """Whether to ask it of this run; where the evidence is missing it is asked."""
        return self.when is None or self.when(evidence) is not False

    def speaks(self, answer: str | float, action: str, risk: str) -> tuple[int, ...]:
        """What an answer says of an action: 1 for each mark that speaks for it, -1 for each against."""
        return tuple(
            1 if mark[0] == "+" else -1
            for mark in self.favours.get(str(answer), ())
            if mark[1:] in (action if mark[1:5] != "risk" else f"risk {risk}")
        )


def questions_dir() -> Path:
    """The folder of questions in the shipped catalogue."""
    return catalog_dir() / "questions"


def load_questions(directory: str | Path | None = None) -> tuple[Question, ...]:
    """All questions, by pattern; the shipped ones (default) are read once. RuleError at the first mistake."""
    return _shipped() if directory is None else _questions_in(Path(directory))


@cache
def _shipped() -> tuple[Question, ...]:
    return _questions_in(questions_dir())


def _questions_in(folder: Path) -> tuple[Question, ...]:
    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise RuleError(f"{folder}: no files of questions (*.toml) in it")
    found: dict[str, Question] = {}
    for path in paths:
        for question in _file(path):
            if question.id in found:
                raise RuleError(f"{path}: question {question.id!r} is there twice")
            found[question.id] = question
    return tuple(sorted(found.values(), key=lambda entry: entry.pattern))


def _file(path: Path) -> list[Question]:
    document, _ = read_document(path)
    entries = document.get("questions")
    if set(document) != {"pattern", "questions"} or not isinstance(entries, list):
        raise RuleError(f"{path}: must hold pattern and [[questions]], in at most {MAX_FILE_BYTES} bytes")
    if document["pattern"] not in PATTERNS or len(entries) > MAX_QUESTIONS:
        raise RuleError(f"{path}: 'pattern' must be one of {', '.join(PATTERNS)}")
    try:
        return [_question(entry, document["pattern"]) for entry in entries]
    except RuleError as error:
        raise RuleError(f"{path}: {error}") from error


def _question(entry: Any, pattern: str) -> Question:
    if not isinstance(entry, dict):
        raise RuleError("[[questions]] must be tables")
    name = entry.get("id")
    _known(entry, _KEYS, f"question {name!r}: unknown key")
    texts = {key: _text(entry, key, name) for key in ("id", "ask", "measure", "lens", "layer", "kind")}
    for key, valid in (("lens", LENSES), ("layer", LAYERS), ("kind", KINDS)):
        _known([texts[key]], valid, f"question {name!r}: no {key}")
    choices = _texts(entry, "choices", name)
    if texts["kind"] == "choice" and not choices:
        raise RuleError(f"question {name!r}: a choice needs choices")
    means, suggests = entry.get("means", {}), entry.get("suggests", {})
    answers = {"yes_no": ("yes", "no"), "choice": choices}.get(texts["kind"], ("any",))
    for table in (means, suggests):
        if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
            raise RuleError(f"question {name!r}: means and suggests must be tables of texts")
        _known(table, answers, f"question {name!r}: no answer")
    _known(suggests.values(), DECISIONS, f"question {name!r}: suggests no")
    favours = entry.get("favours", {})
    if not isinstance(favours, dict):
        raise RuleError(f"question {name!r}: favours must be a table of lists")
    _known(favours, answers, f"question {name!r}: no answer")
    marks = {answer: _texts(favours, answer, name) for answer in favours}
    if not all(mark[:1] in {"+", "-"} and len(mark) > 4 for texts_ in marks.values() for mark in texts_):
        raise RuleError(f"question {name!r}: favours lists +words or -words of an action")
    covers = _texts(entry, "covers", name)
    _known(covers, COVERS, f"question {name!r}: covers no")
    when = Condition(str(entry["when"]), EVIDENCE, {}) if "when" in entry else None
    return Question(
        texts["id"], pattern, covers, texts["lens"], texts["layer"], texts["ask"], texts["kind"], choices,
        str(entry.get("unit", "")), when, dict(means), dict(suggests), texts["measure"], marks,
    )  # fmt: skip


def _known(found: Iterable[Any], valid: Iterable[str], what: str) -> None:
    """RuleError at the first that is not valid, with the nearest that is."""
    allowed = frozenset(valid)
    for value in found:
        if not isinstance(value, str) or value not in allowed:
            raise RuleError(f"{what} {value!r}{nearest(str(value), allowed)}")


def _text(entry: dict[str, Any], key: str, name: object) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise RuleError(f"question {name!r}: {key!r} must be a text")
    return value.strip()


def _texts(entry: dict[str, Any], key: str, name: object) -> tuple[str, ...]:
    value = entry.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise RuleError(f"question {name!r}: {key!r} must be a list of texts")
    return tuple(value)
