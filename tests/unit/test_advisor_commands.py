"""What a finding says to measure is a complete command for the right rank, on the right host."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.advisor.judge.findings import catalog, with_process
from tuiadvisor.views.run_view import Action, Finding

LATE = Job(num_ranks=4, ranks_per_host=2).with_faults(Fault("backward", (2,), 8 * MS))
PIDS: dict[int, tuple[int | None, str]] = {rank: (4000 + rank, f"node{rank // 2}") for rank in range(4)}


def straggler() -> Finding:
    """The finding as the rule words it, before anything is filled in."""
    rule = next(rule for rule in catalog() if rule.id == "straggler")
    found = next(one for one in final_view(LATE).findings if one.id == "straggler")
    actions = tuple(Action(one.text, one.command, one.risk, one.effort) for one in rule.actions)
    return replace(found, measure_next=rule.measure_next, actions=actions)


def test_commands_name_the_late_rank_its_process_and_its_host() -> None:
    """Two hosts: each line says where to type it."""
    found = with_process(straggler(), PIDS, 2)
    assert (2,) == found.ranks
    lines = [*found.measure_next, *(action.command for action in found.actions if action.command)]
    assert any(line.endswith("tuiadvisor capture 2 --steps 3  # rank 2 on node1") for line in lines)
    assert any(line == "tuiadvisor stacks 2 --lines  # rank 2 on node1" for line in lines)
    assert not any(re.search(r"\b(PID|RANK|HOST)\b", line) for line in lines)


def test_on_one_host_nothing_is_said_about_the_host() -> None:
    """There is nowhere else to type it."""
    found = with_process(straggler(), PIDS, 1)
    assert not any("node1" in line or "HOST" in line for line in found.measure_next)
    assert any(line.endswith("tuiadvisor capture 2 --steps 3") for line in found.measure_next)


def test_a_program_of_no_minimal_installation_is_told_with_its_package() -> None:
    """What to type was pidstat, and "command not found" the answer."""
    said = [
        [line for line in with_process(straggler(), PIDS, num_hosts).measure_next if "pidstat" in line]
        for num_hosts in (1, 2)
    ]
    assert [line.partition("  # ")[2] for (line,) in said] == [
        "package sysstat", "rank 2 on node1, package sysstat",
    ]  # fmt: skip
    assert not any(
        "package" in line for line in with_process(straggler(), PIDS, 1).measure_next if "stat" not in line
    )


def test_a_process_that_has_ended_is_not_named() -> None:
    """Its number may belong to another one by now."""
    sampled = Action("See where it stands.", "py-spy dump --pid PID", "low", "minutes")
    found = with_process(replace(straggler(), actions=(sampled,)), {2: (None, "node1")}, 2)
    commands = [action.command for action in found.actions if action.command]
    assert any("--pid PID" in command for command in commands)
    assert any("capture 2 " in line for line in found.measure_next)


def test_without_a_gpu_no_tool_for_gpus_is_named() -> None:
    """Where the devices are not known, they stay."""
    asks = re.compile(r"nvidia-smi|dcgmi")
    assert any(asks.search(line) for line in with_process(straggler(), PIDS, 1).measure_next)
    assert not any(
        asks.search(line) for line in with_process(straggler(), PIDS, 1, has_gpu=False).measure_next
    )


@pytest.mark.parametrize("rule", catalog(), ids=lambda rule: rule.id)
def test_every_finding_above_info_names_what_confirms_it(rule: object) -> None:
    """A tool with its command, or in words what to look at; and no placeholder that nothing fills."""
    texts = [*rule.measure_next, *(action.command or "" for action in rule.actions)]  # type: ignore[attr-defined]
    assert any(texts) or not rule.levels  # type: ignore[attr-defined]
    for text in texts:
        assert set(re.findall(r"\b[A-Z]{3,}_?[A-Z]*\b", text)) <= {
            "PID", "RANK", "HOST", "FILE", "RUN", "DATA_DIR", "LARGE", "SMALL", "TORCH_LOGS", "CPU", "URL",
            "CLOCK", "POWER", "PCI", "SHARED", "APART",
        }  # fmt: skip


def test_of_a_job_that_is_over_nothing_is_asked_that_only_a_running_one_answers() -> None:
    """A trace's first advice was 'While it runs ...: tuiadvisor stacks 1'; of a recording kill -CONT of a process."""
    live = re.compile(r"tuiadvisor (stacks|watch|capture)|kill -CONT|\bPID\b|pidstat")
    waits = Action("Let it go on.", "kill -CONT PID", "low", "minutes")
    busy = Action("Look at what else runs there.", "pidstat -u 5 3", "low", "minutes")
    asked = replace(straggler(), actions=(*straggler().actions, waits, busy))
    running = with_process(asked, {}, 1)
    found = with_process(asked, {}, 1, is_over=True)

    def lines(one: Finding) -> list[str]:
        return [*one.measure_next, *(act.command or "" for act in one.actions)]

    assert {"tuiadvisor stacks", "kill -CONT", "PID", "pidstat", "tuiadvisor capture"} == {
        match.group() for line in lines(running) for match in live.finditer(line)
    }
    assert not any(live.search(line) for line in lines(found))
    texts = [act.text for act in found.actions]
    assert waits.text not in texts
    assert busy.text in texts  # what it says holds without its command
    assert any("nvidia-smi" in line for line in found.measure_next)
