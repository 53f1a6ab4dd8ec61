"""A session as one JSON document, schema 1: saved, resumed, exported and read by scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.session.conduct import Bottleneck

if TYPE_CHECKING:
    from tuiadvisor.session.conduct import Session

SCHEMA: Final = 1
MAX_SESSIONS: Final = 1000


def document(session: Session) -> dict[str, Any]:
    """Plain JSON; unknown is null, what the user did not say is listed under not_stated."""
    intent = asdict(session.intent)
    decision = asdict(session.decision)
    return {
        "schema": SCHEMA,
        "run": session.run,
        "identity": session.identity,
        "intent": {name: value for name, value in intent.items() if value is not None},
        "not_stated": [name for name, value in intent.items() if value is None],
        "answers": session.answers,
        "stages": [_stage(asdict(stage)) for stage in session.stages],
        "decision": {
            **decision,
            "next_constraint": session.next_constraint,
            "would_change": list(session.would_change),
            "verify": session.verify,
        },
        "loop": {**asdict(session.loop), "commands": list(session.loop.commands)},
        "why": {entry.name: asdict(entry) for entry in session.whys},
        "history": [{**asdict(entry), "ranks": list(entry.ranks)} for entry in session.history],
    }


def _stage(stage: dict[str, Any]) -> dict[str, Any]:
    stage["unknown"] = [{"what": what, "measure": measure} for what, measure in stage["unknown"]]
    return stage


def saved_answers(saved: object, identity: str) -> dict[str, object]:
    """The answers given in an earlier session on the same run; none for another run."""
    table = saved if isinstance(saved, dict) else {}
    answers = table.get("answers")
    return dict(answers) if table.get("identity") == identity and isinstance(answers, dict) else {}


def saved_history(saved: object, where: str) -> tuple[Bottleneck, ...]:
    """The bottlenecks of earlier sessions. TuiadvisorError if the file is not a session's."""
    if saved is None:
        return ()
    if (
        not isinstance(saved, dict)
        or saved.get("schema") != SCHEMA
        or not isinstance(saved.get("history"), list)
    ):
        raise TuiadvisorError(
            f"{where}: not a saved session of schema {SCHEMA}; move it away or name another file"
        )
    entries = saved["history"]
    if len(entries) > MAX_SESSIONS:
        raise TuiadvisorError(f"{where}: {len(entries)} sessions exceed {MAX_SESSIONS}; begin a new file")
    return tuple(_bottleneck(entry, where) for entry in entries)


def _bottleneck(entry: object, where: str) -> Bottleneck:
    table = entry if isinstance(entry, dict) else {}
    texts = {name: table.get(name) for name in ("run", "identity", "decision")}
    options = {name: table.get(name) for name in ("finding", "next_constraint")}
    numbers = {name: table.get(name) for name in ("step_s", "predicted_step_s")}
    ranks = table.get("ranks")
    sound = (
        all(isinstance(value, str) and value.isprintable() for value in texts.values())
        and all(
            value is None or (isinstance(value, str) and value.isprintable()) for value in options.values()
        )
        and all(value is None or (type(value) in {int, float} and value >= 0) for value in numbers.values())
        and isinstance(ranks, list)
        and all(type(rank) is int for rank in ranks)
    )
    if not sound or not isinstance(ranks, list):
        raise TuiadvisorError(f"{where}: an entry of its history is damaged; move the file away")
    return Bottleneck(ranks=tuple(ranks), **texts, **options, **numbers)  # type: ignore[arg-type]  # checked above
