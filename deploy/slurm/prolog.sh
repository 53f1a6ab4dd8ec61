#!/bin/sh
# Starts a recording of the step that srun is about to start. No administrator is needed; in the job script:
#
#     export SLURM_PROLOG=/path/to/prolog.sh SLURM_EPILOG=/path/to/epilog.sh
#     srun torchrun ... train.py
#
# TUIADVISOR          the program (default: tuiadvisor)
# TUIADVISOR_FOLDER   where recordings go (default: where the job was submitted)
# For all jobs of a cluster: SrunProlog= and SrunEpilog= in slurm.conf. Whatever fails here, the step starts.
[ -z "${TUIADVISOR_RECORDING:-}" ] || exit 0 # srun of our own agents
[ -n "${SLURM_JOB_ID:-}" ] || exit 0
program=${TUIADVISOR:-tuiadvisor}
command -v "${program%% *}" > /dev/null || exit 0
folder=${TUIADVISOR_FOLDER:-${SLURM_SUBMIT_DIR:-.}}
file="$folder/tuiadvisor-$SLURM_JOB_ID.${SLURM_STEP_ID:-0}.tuirec"
[ ! -e "$file" ] || exit 0
unset SLURM_PROLOG SLURM_EPILOG # our own srun has neither
export TUIADVISOR_RECORDING=1
(
    # The ranks come some time after this; until then a recording would be one of nothing.
    for _ in $(seq 120); do
        $program record -o "$file" --slurm "$SLURM_JOB_ID" >> "$file.log" 2>&1 &
        echo $! > "$file.pid"
        wait $!
        code=$?
        [ -e "$file.pid" ] || break # the epilog took it away: the job's step has ended
        : > "$file.pid"             # its number may soon be another process's
        [ "$code" != 0 ] || break
        rm -f "$file" # no step in it, and it says so in the log
        sleep 5
        [ -e "$file.pid" ] || break # it came while there was no recording to end
    done
) > /dev/null 2>&1 < /dev/null &
exit 0
