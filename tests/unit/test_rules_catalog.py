"""The shipped catalogue is sound, its cases hold, and a wrong rule file is one clear line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from synthetic_pipeline import Pipeline
from synthetic_pipeline import frames as pipeline_frames
from synthetic_run import MS, Fault, Job, folded, frames

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.judge.pipelines import find_pipelines
from tuiadvisor.causes.facts import Facts
from tuiadvisor.causes.names import table
from tuiadvisor.causes.registry import CAUSES, measure_all, measure_job
from tuiadvisor.metrics.diagnosing import diagnose_table
from tuiadvisor_rules.condition import RuleError
from tuiadvisor_rules.evaluate import check, general_title, judge, show
from tuiadvisor_rules.loader import Rule, catalog_dir, load_catalog, load_rule
from tuiadvisor_rules.message import fill, seconds, worded
from tuiadvisor_rules.metric_names import ALL, UNITS, names_for
from tuiadvisor_rules.user import load_rules

METRIC_TABLE = Path(__file__).parents[2] / "rules" / "tuiadvisor_rules" / "metrics.txt"
ON_THE_JOB_ITSELF = {"healthy", "little_compute", "exchange_outweighs_compute", "unseen_rank"}
IDS = {
    "heavy_stage",
    "pipeline_bubble",
    "straggler",
    "input_bound",
    "communication_bound",
    "warmup",
    "checkpoint_pause",
    "periodic_pause",
    "healthy",
}


def test_the_shipped_catalogue_has_no_problem() -> None:
    """Every file loads and every case comes out as it says."""
    assert [] == check()
    assert IDS <= {rule.id for rule in load_catalog()}


@pytest.mark.slow
@pytest.mark.parametrize("rule", load_catalog(), ids=lambda rule: rule.id)
def test_every_rule_can_be_shown(rule: Rule) -> None:
    """What it finds, its thresholds with their source, and an example without a gap."""
    text = show(rule.id, load_catalog())
    assert rule.title.split("{", maxsplit=1)[0] in text
    assert all(threshold.source in text for threshold in rule.thresholds.values())
    example = text.rsplit("Example", maxsplit=1)[1]
    assert "{" not in example


@pytest.mark.parametrize("rule", load_catalog(), ids=lambda rule: rule.id)
def test_firing_cases_fill_their_message(rule: Rule) -> None:
    """A firing case names every number its message needs: no "unknown" in the example; it begins like a sentence."""
    for case in rule.cases:
        outcome = judge(rule, case.metrics)
        assert outcome.fires == (case.expect not in {"silent", "unknown"})
        assert "unknown" not in outcome.message
        assert "unknown" not in outcome.headline
        assert not outcome.message[:1].islower()


@pytest.mark.parametrize("rule", load_catalog(), ids=lambda rule: rule.id)
def test_no_shown_text_of_a_finding_holds_a_brace(rule: Rule) -> None:
    """Title, headline, message and actions are filled in; all else that a finding shows has nothing to fill in."""
    for case in rule.cases:
        outcome = judge(rule, case.metrics)
        if not outcome.fires:
            continue
        said = outcome.rule
        steps = [text for step in said.actions for text in (step.text, step.command, step.upkeep, step.ties)]
        shown = [outcome.title, outcome.headline, outcome.message, said.why, said.verify]
        assert [] == [text for text in (*shown, *said.measure_next, *steps) if text and "{" in text]
        assert "unknown" not in outcome.title


def test_a_title_that_names_no_metric_is_refused(rule_text: str, tmp_path: Path) -> None:
    """A title is a template like a message: it would be shown with its braces."""
    path = tmp_path / "mine.toml"
    path.write_text(re.sub(r"(?m)^title = .*$", 'title = "Late by {exces_s}"', rule_text))
    with pytest.raises(RuleError, match="no metric 'exces_s'"):
        load_rule(path)


@pytest.mark.parametrize("rule", load_catalog(), ids=lambda rule: rule.id)
def test_a_title_without_a_case_has_no_placeholders(rule: Rule) -> None:
    assert "{" not in general_title(rule)


def test_an_unknown_rule_gets_the_nearest_name() -> None:
    """A typo on the command line."""
    with pytest.raises(RuleError, match="did you mean 'straggler'"):
        show("stragler", load_catalog())


def test_the_advisor_supplies_exactly_the_metrics_rules_may_name() -> None:
    """Scope by scope: nothing declared is missing, nothing supplied is undeclared."""
    faults = (Fault("forward", (1,), 8 * MS), Fault("checkpoint", (0,), 90 * MS, every=40))
    advisor = Advisor()
    for frame in frames(Job(faults=faults)):
        advisor.feed_frame(frame)
    found = advisor.store.table()
    assert found is not None
    table, first = found
    alive = table.present_RK.any(axis=1)
    diagnosis = diagnose_table(table, alive, from_beginning=first, all_ranks_seen=True)
    job = measure_job(diagnosis, Facts())
    assert names_for("job") == {*job, "num_findings_above_info"}
    found = {one.scope: one for one in measure_all(diagnosis, Facts(), job)}
    for scope in ("straggler", "pause"):
        assert names_for(scope) == {*found[scope].values, "num_findings_above_info"}
    advisor = folded(pipeline_frames(Pipeline(heavy=((1, 2.0),))))
    found = advisor.store.table()
    assert found is not None
    alive = found[0].present_RK.any(axis=1)
    diagnosis = diagnose_table(found[0], alive, from_beginning=True, all_ranks_seen=True)
    pipelines = find_pipelines(advisor.chunks, advisor.roster, advisor.store, diagnosis)
    facts = Facts(pipelines=pipelines)
    job = measure_job(diagnosis, facts)
    assert names_for("job") == {*job, "num_findings_above_info"}
    (stage,) = [one for one in measure_all(diagnosis, facts, job) if one.scope == "stage"]
    assert names_for("stage") == {*stage.values, "num_findings_above_info"}


def test_the_rules_package_has_the_metrics_that_the_causes_declare() -> None:
    """It knows nothing but the standard library, so its table is made of theirs: python -m tuiadvisor.causes.names."""
    assert table() == METRIC_TABLE.read_text()


def test_every_shipped_rule_is_of_one_cause_and_every_cause_has_its_rules() -> None:
    """But for rules that rest on the job's own metrics."""
    shipped = {rule.id for rule in load_catalog()}
    named = [rule for cause in CAUSES for rule in cause.rules]
    assert len(named) == len(set(named))
    assert set(named) <= shipped
    asked = "name the rule in rules= of its cause, or in ON_THE_JOB_ITSELF"
    assert shipped - set(named) == ON_THE_JOB_ITSELF, asked


def test_metric_names_have_a_unit_and_keep_it_in_every_scope() -> None:
    """The unit formats messages, so a name may not change it."""
    units: dict[str, set[str]] = {}
    for entry in ALL:
        assert entry.unit in UNITS
        units.setdefault(entry.name, set()).add(entry.unit)
    assert {name for name, found in units.items() if len(found) > 1} == set()
    assert len(ALL) == len({(entry.scope, entry.name) for entry in ALL})


@pytest.fixture(name="rule_text")
def _rule_text() -> str:
    return (catalog_dir() / "input_bound.toml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("data_wait_share >= thresholds.moderate", "data_wait_shares >= thresholds.moderate",
         r":13: no metric 'data_wait_shares'; did you mean 'data_wait_share'\?"),
        ('lens = "L-BALANCE"', 'lens = "L-BALANCED"', r":6: 'lens' is 'L-BALANCED'; did you mean 'L-BALANCE'\?"),
        ("condition =", "conditon =", r":\d+: unknown key 'conditon'; did you mean 'condition'\?"),
        ("critical =", "kritical =", r"unknown severity 'kritical'; did you mean 'critical'\?"),
        ("value = 0.2,", 'value = "0.2",', r"threshold 'high' is not a number"),
        ("{data_wait_loss_s} shorter", "{data_wait_lost_s} shorter", r"no metric 'data_wait_lost_s' for the message"),
        ('risk = "low"', 'risk = "none"', r"'risk' is 'none'"),
        ('expect = "silent"', 'expect = "critical"', r"needs at least one case|unknown"),
        ("id = ", "id == ", r"not TOML"),
        ("high = {", '"2 high" = {', r"threshold '2 high' has no name that a condition could use"),
        ("value = 0.2,", "value = nan,", r"threshold 'high' is not between"),
        ('risk = "low"', 'risk = "low"\nrisc = 1', r"unknown key 'risc' in \[\[actions\]\]; did you mean 'risk'"),
        ('command = "', 'command = 7 # "', r"'command' must be a text"),
        ("[[cases]]", "[[cases]]\nmetrics = 1", r"'metrics' of a case must be a table|not TOML"),
        ("data_wait_share = 0.012", "data_wait_share = 2e18", r"metric 'data_wait_share' of a case is not between"),
    ],
)  # fmt: skip
def test_a_wrong_rule_names_file_line_and_the_nearest_valid_name(
    rule_text: str, tmp_path: Path, old: str, new: str, says: str
) -> None:
    """One line a person can act on."""
    assert old in rule_text
    path = tmp_path / "mine.toml"
    changed = rule_text.replace(old, new)
    if "expect" in old:
        changed = changed.replace('expect = "unknown"', 'expect = "critical"')
    path.write_text(changed)
    with pytest.raises(RuleError, match=says) as caught:
        load_rule(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_all_keys_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    """Who writes a first rule is not told them one by one."""
    path = tmp_path / "first.toml"
    path.write_text('id = "first"\ntitle = "a first rule"\ncondition = "num_ranks > 1"\n')
    with pytest.raises(RuleError, match="missing keys 'pattern', 'lens', 'layer', 'decision', "):
        load_rule(path)


def test_a_threshold_without_a_source_is_refused(rule_text: str, tmp_path: Path) -> None:
    """A number that nobody stands for decides nothing."""
    path = tmp_path / "mine.toml"
    path.write_text(re.sub(r"(high = \{ value = [\d.]+, source = )\"[^\"]*\"", r'\1" "', rule_text))
    with pytest.raises(RuleError, match="threshold 'high' has no source"):
        load_rule(path)


@pytest.mark.parametrize("value", ['"storage"', "[1, 2]"])
def test_a_list_of_texts_is_one(rule_text: str, tmp_path: Path, value: str) -> None:
    """A single text in its place would be read letter by letter."""
    path = tmp_path / "mine.toml"
    path.write_text(re.sub(r"measure_next = \[[^\]]*\]", f"measure_next = {value}", rule_text))
    with pytest.raises(RuleError, match="'measure_next' must be a list of texts"):
        load_rule(path)


def test_keys_after_thresholds_are_refused(rule_text: str, tmp_path: Path) -> None:
    """In TOML they silently join that table."""
    path = tmp_path / "mine.toml"
    path.write_text(rule_text.replace("[thresholds]", '[thresholds]\nwhy = "because"'))
    with pytest.raises(RuleError, match="threshold 'why' must be"):
        load_rule(path)


def test_check_reports_every_bad_file_and_every_wrong_case(rule_text: str, tmp_path: Path) -> None:
    """One line each, not only the first."""
    (tmp_path / "a.toml").write_text("id = ")
    (tmp_path / "b.toml").write_text(rule_text.replace('lens = "L-BALANCE"', 'lens = "?"'))
    (tmp_path / "c.toml").write_text(
        rule_text.replace("data_wait_share = 0.012", "cpu_limited = 0\ndata_wait_share = 0.3")
    )
    problems = check(tmp_path)
    assert ["a.toml", "b.toml", "c.toml"] == [re.findall(r"\w\.toml", line)[0] for line in problems]
    assert "expects silent, the rule says critical" in problems[2]


def test_two_rules_with_one_id_are_refused(rule_text: str, tmp_path: Path) -> None:
    """The files are named."""
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text(rule_text)
    with pytest.raises(RuleError, match=r"b\.toml: id 'input_bound' is already used by .*a\.toml"):
        load_catalog(tmp_path)


@pytest.mark.parametrize("where", ["missing", "empty"])
def test_a_folder_without_rules_is_said(tmp_path: Path, where: str) -> None:
    """Neither a traceback nor an empty catalogue."""
    folder = tmp_path / where
    if where == "empty":
        folder.mkdir()
    (said,) = check(folder)
    assert str(folder) in said
    assert ("no such folder of rules" if where == "missing" else "no rule files (*.toml) in it") in said


@pytest.mark.parametrize(
    ("expected", "value"),
    [("123 s", 123.4), ("1.23 s", 1.234), ("14.3 ms", 0.01432), ("250 µs", 0.00025), ("-2 ms", -0.002)],
)
def test_durations_read_well(expected: str, value: float) -> None:
    """Three digits in the unit people would use."""
    assert expected == seconds(value)


def test_messages_are_filled_by_unit_and_unknown_is_said() -> None:
    """Shares in percent, seconds scaled, missing values as "unknown"."""
    text = "{transfer_share} in {transfer_s}, overlap {overlap}, ranks {num_ranks}"
    values = {"transfer_share": 0.3, "transfer_s": 0.0064, "num_ranks": 4}
    assert "30 % in 6.4 ms, overlap unknown, ranks 4" == fill(text, values)
    assert "3.1 %" == worded("overlap", 0.031)
    assert "12,001" == worded("level_shift_since", 12001)  # as everywhere else on the screen


@pytest.mark.parametrize("rule", load_catalog(), ids=lambda rule: rule.id)
def test_no_action_takes_one_host_out_of_many(rule: Rule) -> None:
    """A job on one host has no other to be placed on: keeping the next run off it is said of any number."""
    every = [*rule.actions, *(entry for variant in rule.variants for entry in variant.actions or ())]
    assert not [entry.text for entry in every if "exclude" in entry.text]


def test_who_computes_with_one_thread_is_not_told_to_start_fewer() -> None:
    """The advice of an oversubscribed host, by what the probe saw of each rank."""
    (rule,) = [one for one in load_rules() if one.id == "crowded_host"]
    said = {
        num: " ".join(one.text for one in rule.spoken({"rank_threads": num}).actions) for num in (1, 8, None)
    }
    assert "OMP_NUM_THREADS" not in said[1]
    assert "one thread already" in said[1]
    assert said[8] == said[None]
    assert "OMP_NUM_THREADS" in said[8]
