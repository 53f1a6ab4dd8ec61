"""What the user wants of a run: objective, limits, prices, what remains. A small TOML file a project.

In: .tuiadvisor.toml and KEY=VALUE.  Out: Intent. None means "not stated": nothing is ever assumed for it.
"""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.small_file import read_small
from tuiadvisor_rules.condition import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIKE: Final = 1.1  # what remains, said in two units: a last epoch is cut, a number rounded
FILE_NAME: Final = ".tuiadvisor.toml"
MAX_FILE_BYTES: Final = 64 << 10
MAX_TEXT: Final = 400
LARGEST: Final = 1e18
CHOICES: Final = {
    "objective": ("time", "efficiency", "cost"),
    "purpose": ("exploratory", "shared", "production"),
    "max_complexity": ("low", "medium", "high"),
}
# What decides where only the purpose is stated: who explores waits for the result, who shares owes the others an
# efficient use, and what is produced is paid for by the unit. A stated objective wins.
PRESET: Final[dict[str, Literal["time", "efficiency", "cost"]]] = {
    "exploratory": "time",
    "shared": "efficiency",
    "production": "cost",
}
TEXTS: Final = ("workload", "currency")
HOURS_PER_UNIT: Final = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0, "d": 24.0}
MAY_BE_ZERO: Final = {
    "restart_min",
    "queue_h",
    "failures_per_day",
    "energy_price_per_kwh",
    "engineer_hour_price",
}


@dataclass(frozen=True, slots=True)
class Intent:
    """None: not stated. Money is in the user's own currency throughout."""

    objective: Literal["time", "efficiency", "cost"] | None = None
    purpose: Literal["exploratory", "shared", "production"] | None = None
    deadline_h: float | None = None  # hours from now
    budget: float | None = None  # for the rest of the run
    price_per_device_hour: float | None = None
    price_of_time: float | None = None  # what one hour earlier is worth
    energy_price_per_kwh: float | None = None
    device_power_w: float | None = None
    remaining_steps: float | None = None
    remaining_samples: float | None = None
    remaining_tokens: float | None = None
    remaining_epochs: float | None = None
    steps_per_epoch: float | None = None
    engineer_hour_price: float | None = None
    planned_runs: float | None = None  # after this one, each as long as the rest of it
    max_complexity: Literal["low", "medium", "high"] | None = None
    restart_min: float | None = None  # end, queue, start again
    queue_h: float | None = None  # no device is held meanwhile
    failures_per_day: float | None = None
    workload: str | None = None  # model, data, global batch, unit of useful work, in the user's words
    currency: str | None = None


MEANINGS: Final = {
    "objective": "what decides: time, efficiency or cost",
    "purpose": "exploratory, shared or production: presets the objective where none is stated",
    "deadline_h": "hours until the result is needed (12h, 3d)",
    "budget": "what the rest of the run may cost",
    "price_per_device_hour": "price of one device for an hour",
    "price_of_time": "what the result one hour earlier is worth",
    "energy_price_per_kwh": "price of a kilowatt-hour, where it is paid beside the device",
    "device_power_w": "power of one device under this load, in watts",
    "remaining_steps": "optimizer steps left",
    "remaining_samples": "samples left",
    "remaining_tokens": "tokens left",
    "remaining_epochs": "epochs left (needs steps_per_epoch)",
    "steps_per_epoch": "optimizer steps of one epoch",
    "engineer_hour_price": "price of an engineer's hour",
    "planned_runs": "further runs that a change would serve, each as long as the rest of this one",
    "max_complexity": "most complex change you would accept: low, medium or high",
    "restart_min": "minutes that ending and starting again take, with the devices held",
    "queue_h": "hours that a request for other devices waits in the queue",
    "failures_per_day": "how often a day the job fails",
    "workload": "model, data, global batch and unit of useful work, in words",
    "currency": "currency of all prices, for display only",
}
ALIASES: Final = {"deadline": "deadline_h"}


def read_intent(path: str | Path) -> Intent:
    """The intent of a project; an absent file states nothing. TuiadvisorError names file, key and remedy."""
    where = Path(path)
    if not where.exists():
        return Intent()
    raw = read_small(where, MAX_FILE_BYTES, "is this an intent file?")
    try:
        table = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is only a ValueError
        raise TuiadvisorError(
            f"{where}: not TOML ({error}); write it with tuiadvisor intent --set"
        ) from error
    try:
        return changed(Intent(), table)
    except TuiadvisorError as error:
        raise TuiadvisorError(f"{where}: {error}") from error


def changed(intent: Intent, table: Mapping[str, object]) -> Intent:
    """The intent with these values; None or an empty text takes a value back."""
    known = {field.name: getattr(intent, field.name) for field in fields(intent)}
    for key, value in table.items():
        name = ALIASES.get(key, key)
        if name not in known:
            raise TuiadvisorError(f"no key {key!r}{nearest(key, known) or '; see tuiadvisor intent'}")
        known[name] = None if value is None or value == "" else checked(name, value)
    return Intent(**known)


def checked(name: str, value: object) -> float | str:
    """One value, validated."""
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise TuiadvisorError(f"{name} is {_short(value)}; write {', '.join(CHOICES[name])}")
        return str(value)
    if name in TEXTS:
        if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_TEXT:
            raise TuiadvisorError(f"{name} must be one printable line of at most {MAX_TEXT} characters")
        return value
    number = _hours(value) if name == "deadline_h" else _number(value)
    if number is None or number > LARGEST or number < 0 or (number == 0 and name not in MAY_BE_ZERO):
        hint = "a duration like 12h or 3d" if name == "deadline_h" else "a positive number"
        raise TuiadvisorError(f"{name} is {_short(value)}, not {hint}")
    return number


def parse_settings(settings: list[str]) -> dict[str, object]:
    """KEY=VALUE as typed; an empty value takes the key back."""
    table: dict[str, object] = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator:
            raise TuiadvisorError(
                f"{_short(setting)} sets nothing; write key=value, for example objective=cost"
            )
        table[key.strip()] = value.strip()
    return table


def write_intent(path: str | Path, intent: Intent) -> None:
    """Write what was stated; what was not stays a commented line, so that the file shows what could be said."""
    lines = [
        "# What this training is for; read by tuiadvisor advise. A line with # in front is not stated.",
        "",
    ]
    for name, value in asdict(intent).items():
        line = f"{name} = {toml_value(value)}" if value is not None else f"# {name} ="
        lines.append(f"{line:<40}  # {MEANINGS[name]}")
    try:
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise FailureError(f"{path}: cannot be written: {error.strerror}") from error


def toml_value(value: object) -> str:
    """A number or a text as TOML."""
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    return json.dumps(value, ensure_ascii=False)


def preset(intent: Intent) -> Intent:
    """With the objective that its purpose stands for, where none is stated."""
    if intent.objective is not None or intent.purpose is None:
        return intent
    return replace(intent, objective=PRESET[intent.purpose])


def not_stated(intent: Intent) -> tuple[str, ...]:
    """Keys without a value, in order."""
    return tuple(name for name, value in asdict(intent).items() if value is None)


def _ways(intent: Intent, samples_per_step: float | None, tokens_per_step: float | None) -> dict[str, float]:
    """Steps that remain, by each key that tells them."""
    found = {
        "remaining_steps": intent.remaining_steps,
        "remaining_epochs": _product(intent.remaining_epochs, intent.steps_per_epoch),
        "remaining_tokens": _product(
            intent.remaining_tokens, 1 / tokens_per_step if tokens_per_step else None
        ),
        "remaining_samples": _product(
            intent.remaining_samples, 1 / samples_per_step if samples_per_step else None
        ),
    }
    return {name: steps for name, steps in found.items() if steps is not None}


def _product(amount: float | None, each: float | None) -> float | None:
    return None if amount is None or each is None else amount * each


def stated_steps(
    intent: Intent, samples_per_step: float | None, tokens_per_step: float | None
) -> float | None:
    """Steps that remain, from whichever way the user said it; None when it cannot be told or the ways contradict."""
    if contradiction(intent, samples_per_step, tokens_per_step):
        return None
    return next(iter(_ways(intent, samples_per_step, tokens_per_step).values()), None)


def contradiction(intent: Intent, samples_per_step: float | None, tokens_per_step: float | None) -> str:
    """What contradicts what, and how to mend it; empty where nothing does."""
    ways = _ways(intent, samples_per_step, tokens_per_step)
    if not ways or max(ways.values()) <= ALIKE * min(ways.values()):
        return ""
    told = ", ".join(f"{name} {steps:,.{0 if steps >= 1 else 2}f} steps" for name, steps in ways.items())
    names = list(ways)
    return f"what remains is stated twice and differs: {told}; take one back: tuiadvisor intent --set {names[-1]}="


def price_of_device_hour(intent: Intent) -> float | None:
    """Device and, where both are stated, its energy."""
    price = intent.price_per_device_hour
    if price is None:
        return None
    if intent.energy_price_per_kwh is None or intent.device_power_w is None:
        return price
    return price + intent.energy_price_per_kwh * intent.device_power_w / 1000


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(cast("str | float", value))
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _hours(value: object) -> float | None:
    if isinstance(value, str) and value[-1:] in HOURS_PER_UNIT:
        number = _number(value[:-1])
        return None if number is None else number * HOURS_PER_UNIT[value[-1]]
    return _number(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
