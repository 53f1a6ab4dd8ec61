"""The metrics that rules may name: the vocabulary between measuring and judging.

One line a metric: scope, unit, meaning. The advisor supplies exactly these (a test compares); a rule that names
another one is refused with the nearest valid name. Scopes: `job` metrics are known to every rule, the
others only to rules of their scope, which are judged once for each straggler group, kind of pause, group of heavy
pipeline stages or standstill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SCOPES: Final = ("job", "straggler", "pause", "stage", "standstill")
UNITS: Final = ("s", "share", "ratio", "steps", "count", "flag", "text")


@dataclass(frozen=True, slots=True)
class MetricName:
    """unit `text` is for messages only; `share` is 0..1; None values are unknown."""

    name: str
    scope: str
    unit: str
    meaning: str


_TABLE: Final = """
job num_ranks count ranks of the job that were seen
job num_ranks_missing count ranks of the job that were not seen
job cores_per_rank ratio processor cores for each rank, on the host that has fewest
job ready_per_core ratio threads that run or wait for a core, for each core, on the typical host
job core_wait_share share of its time the typical rank was ready to run and had no core
job host_crowded flag 1 if it was seen that ranks wait for cores; 0 if not, or not observed
job host_packed flag 1 if so many threads want each core that what ranks lose tells little; 0 if not, or not observed
job crowd_note text that the host is crowded, in three words; empty where it is not
job crowd_words text what a crowded host means for a loss of all ranks; empty where it is not crowded
job memory_share share of the memory in use of the host or device that is full first, if one fills steadily
job memory_left_s s until it is full, at its pace
job memory_span_s s over which it was seen to fill
job memory_words text whose memory fills, how full it is, how fast it grows and when it is full
job device_behind_share share of its step by which a device is behind its training thread; near 0 it waits for launches
job device_step_s s from the first to the last phase of a step on the device's clock
job num_hosts count hosts of the ranks that were seen
job steady_steps steps steady steps in the window
job step_s s mean step of the window
job data_wait_share share of the step that even the quarter of ranks that waits least waits for its next batch
job data_wait_share_low share lower end of the interval of data_wait_share
job data_wait_loss_s s a step, gone if no rank waited for input
job data_wait_since steps job step since which the data wait has its level
job data_wait_first_s s a step of data wait in the first eighth of the steady steps, where it grows steadily
job data_wait_last_s s the same in the last eighth
job data_wait_growth_share share of the step by which the data wait has grown between them
job transfer_share share of the step in exposed communication after the last rank arrived
job transfer_share_low share lower end of the interval of transfer_share
job transfer_s s a step, exposed communication after the last rank arrived
job transfer_since steps job step since which the transfer has its level
job hideable_s s a step of the exposed exchange that forward and backward could hide at most
job hide_words text what that means for the exchange; empty where all of it could be hidden, or it is not known
job bucket_hideable_s s a step of the exposed exchange that order and size of DDP's buckets could still hide at most
job bucket_saved_s s a step that the wanted size of buckets would save, of the exposed exchange
job bucket_saved_low_s s lower end of its interval; 0 where compute and exchange share cores
job bucket_saved_high_s s upper end of its interval
job bucket_cap_wanted count bucket_cap_mb that nearly saves most; unknown where no size is worth it
job first_bucket_s s from the begin of backward until the first bucket is complete on all ranks
job exchange_backward_s s of backward until the last gradient, on the rank that comes last
job exchange_ratio ratio time to move all gradients against that backward; up to 1 it could be hidden wholly
job exchange_steps steps steps in which the exchange was seen bucket by bucket
job barrier_wait_s s a step that even the last recorded rank waits at the barrier, whoever it waits for
job barrier_wait_share share of the step, the same
job comm_exposed_share share of the step in exposed communication, waiting for late ranks included
job overlap share of communication that compute hides
job straggler_share share of the step that all stragglers together cost
job num_stragglers count ranks that others wait for
job straggler_slowdown ratio mean step against every rank at the mean of its peers (S)
job turn_taking_share share of the step lost to ranks taking turns at being last, each step anew
job turn_taking_s s a step, gone if each step's work were spread evenly over the ranks
job wandering_s s a step, gone if no rank were late for a stretch of steps, one after another
job wandering_share share of the step
job wandering_share_low share lower end of its interval
job wandering_steps steps typical length of such a stretch
job wandering_since steps job step since which lateness wanders; unknown where it always did
job wandering_phase text phase that most of that lateness lies in
job wandering_words text the ranks that were late in stretches, and the phase that most of it lies in
job length_fit share of the variance of the ranks' lateness that the tokens of their batches explain
job length_spread share by which tokens differ between the ranks of a step: standard deviation, of the mean
job length_loss_s s a step, gone if every step's tokens were spread evenly over the ranks
job length_loss_share share of the step
job length_loss_share_low share lower end of its interval
job warmup_steps steps slow first steps
job warmup_s s lost to slow first steps in all
job warmup_break_even_steps steps after which the warm-up is less than 5 % of the run
job warmup_share share of the observed time lost to slow first steps
job level_shift_share share by which the step became longer at level_shift_since, of the step before
job level_shift_since steps job step at which the step became longer
job level_shift_unexplained flag 1 if no other finding explains the longer step
job level_shift_phase text phase that grew most
job level_shift_words text the same in words
job level_shift_steps steps steady steps seen since the step became longer
job level_shift_cover share share of the growth that this phase holds
job compute_share share of the step in forward, backward and optimizer
job pipeline_ranks count ranks of a pipeline, 0 without one
job pipeline_stages count stages of a pipeline
job pipeline_micro_batches count micro-batches of a step
job pipeline_bubble share of a pipeline's rank-time that is idle: fill, imbalance and delay together
job pipeline_ideal_bubble share the same with equal stages and free sends
job pipeline_fill_share share of a pipeline's rank-time: filling and draining, stages taken as equal
job pipeline_imbalance_share share of a pipeline's rank-time: waiting for stages that take longer
job pipeline_delay_share share of a pipeline's rank-time: sends and whatever else lies between chunks
job pipeline_fill_loss_s s a step, gone with pipeline_micro_batches_wanted
job pipeline_fill_loss_share share of the step
job pipeline_micro_batches_wanted count micro-batches that bring filling and draining below a tenth
job num_findings_above_info count findings of the other rules above info
straggler ranks text ranks of the group, e.g. "rank 2" or "ranks 1 and 3"
straggler host text host of the group
straggler phase text where the delay arises: a phase, "host", "device", "other" or "unknown"
straggler phase_words text the phase in plain words
straggler loss_s s a step, gone if the group worked like its peers
straggler loss_share share of the step
straggler loss_share_low share lower end of its interval
straggler excess_s s by which the group arrives later than its peers, in a typical step in which it is late
straggler excess_share share lateness of the group as a share of the step, mean over all steps
straggler cover share of the delay that the named phase holds
straggler hit_share share of the steps in which the group is late
straggler score ratio peers' work between barriers against the group's
straggler since steps job step since which the group is late
straggler steps_seen steps steps of the window in which it was compared
straggler beyond_past ratio lateness since its onset against the largest of any rank before, over as many steps
straggler since_words text "since step 57" or "from the first step compared on"
straggler whole_host flag 1 if all ranks of one host are late and no others
straggler in_data flag 1 if the delay arises while waiting for input
straggler in_compute flag 1 if it arises in forward, backward or optimizer
straggler in_host flag 1 if it arises on the host or device as a whole
pause kind text "checkpoint", "eval", "garbage collection", "periodic" or "irregular"
pause ranks text the same as starter
pause gc_share share of the pauses in which Python collects garbage
pause num_pauses count pauses in the window
pause period_steps steps between two pauses
pause period_words text "every 40 steps" or, where only one was seen, "at step 60"
pause times_words text how often, how long and when: "once, for 3 s at step 100"
pause longest_s s that the longest of irregular pauses adds
pause second_s s that the second longest of them adds; unknown where there is one
pause length_s s that one pause adds
pause loss_s s a step, spread over all steps of the window
pause loss_share share of the step
pause starter text ranks that the others wait for, e.g. "rank 0", or "all ranks"
pause since steps job step of the first pause seen
pause phase text phase in which the pause passes on the rank that begins it
pause phase_words text the same in plain words
pause cause_words text what was seen of its cause, in plain words
pause is_checkpoint flag 1 if checkpoints are being written
pause is_eval flag 1 if the model is being evaluated
pause is_periodic flag 1 if nothing marks what happens in it
pause is_over flag 1 if periodic pauses have not come for more than two of their periods
pause is_irregular flag 1 if pauses of these ranks have no common distance, or only one was seen
stage ranks text ranks that hold the heavy stages, e.g. "rank 2"
stage stages text heavy stages, e.g. "stage 2"
stage phase text forward or backward where most of the excess lies in one of them, else "both"
stage phase_words text the same in plain words
stage loss_s s a step, gone if the stage took as long as the others
stage loss_share share of the step
stage loss_share_low share lower end of its interval
stage even_loss_s s a step, gone if the same work were spread evenly over the stages
stage excess_s s a step by which the stage takes longer than the typical one
stage excess_share share its excess as a share of the typical stage's time
stage hit_share share of the steps in which it is the heavy one
stage since steps job step since which it is
stage since_words text "since step 57" or "from the first step compared on"
stage steps_seen steps whole steady steps compared
stage is_partition flag 1 if it is heavy in every pipeline of the job, 0 if only in some, unknown with one pipeline
standstill still_s s since any rank's training thread went from one phase to another
standstill still_words text who waits, for whom, where and since which step
standstill still_since steps job step at which the ranks stand
standstill num_still_missing count ranks the others wait for, as far as it was observed
"""


def fields(line: str) -> tuple[str, str, str, str]:
    """(name, scope, unit, meaning) of one line of the table."""
    scope, name, unit, meaning = line.split(" ", 3)
    return name, scope, unit, meaning


ALL: Final = tuple(MetricName(*fields(line)) for line in _TABLE.strip().splitlines())
METRICS: Final = {entry.name: entry for entry in ALL}  # a name keeps its unit in every scope


def names_for(scope: str) -> frozenset[str]:
    """Metrics that a rule of this scope may name."""
    return frozenset(entry.name for entry in ALL if entry.scope in {"job", scope})
