#!/bin/sh
# Ends the recording that prolog.sh began, and leaves its verdict as a line of the job's output. See prolog.sh.
[ -z "${TUIADVISOR_RECORDING:-}" ] || exit 0
[ -n "${SLURM_JOB_ID:-}" ] || exit 0
folder=${TUIADVISOR_FOLDER:-${SLURM_SUBMIT_DIR:-.}}
file="$folder/tuiadvisor-$SLURM_JOB_ID.${SLURM_STEP_ID:-0}.tuirec"
[ -e "$file.pid" ] || exit 0
pid=$(cat "$file.pid")
rm -f "$file.pid"
[ -z "$pid" ] || kill "$pid" 2> /dev/null
for _ in $(seq 200); do # the last steps are read and judged; a job is not held up for longer
    [ -n "$pid" ] && kill -0 "$pid" 2> /dev/null || break
    sleep 0.1
done
line=$(tail -n 1 "$file.log" 2> /dev/null)
echo "tuiadvisor: ${line:-nothing was recorded}"
[ ! -e "$file" ] || echo "tuiadvisor: look again with: tuiadvisor replay $file"
exit 0
