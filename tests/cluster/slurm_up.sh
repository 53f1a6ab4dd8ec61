#!/bin/sh
# A real Slurm of two nodes on this machine, everything in one new folder: munge, slurmctld and two slurmd, each in a
# namespace of its own host name and processes. As root, with Debian's slurm-wlm and munge:
#
#     tests/cluster/slurm_up.sh FOLDER      prints "up" and stays; all of it ends with this script (or its SIGTERM)
#     SLURM_CONF=FOLDER/slurm.conf sinfo
#
# Variables of the environment of this script (PYTHONPATH, say) are those of the nodes' daemons, not of the jobs.
set -eu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
port=${SLURM_TEST_PORT:-16817}
mkdir -p "$folder/state" "$folder/spool" "$folder/log"
# Munge wants a socket and a key that nobody else may change, and folders above them that are no secret.
chmod 755 "$folder"
umask 077
dd if=/dev/urandom of="$folder/munge.key" bs=128 count=1 2>/dev/null
umask 022
cat > "$folder/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
NodeName=slurm1 NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4 RealMemory=2000 State=UNKNOWN
NodeName=slurm2 NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4 RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=slurm1,slurm2 Default=YES MaxTime=INFINITE State=UP
CONF
started="" nodes=""
end() {
    status=$?
    trap - EXIT TERM INT
    # unshare hears no SIGTERM; with it go the namespace and all that runs in it, jobs too.
    for pid in $nodes; do kill -9 "$pid" 2>/dev/null || true; done
    for pid in $started; do kill "$pid" 2>/dev/null || true; done
    wait
    exit "$status"
}
trap end EXIT TERM INT
export SLURM_CONF="$folder/slurm.conf"
munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --seed-file="$folder/munge.seed" --log-file="$folder/log/munged.log" \
    > "$folder/log/munged.out" 2>&1 &
started="$started $!"
for _ in $(seq 3000); do [ -S "$folder/munge.socket" ] && break; sleep 0.1; done
slurmctld -D -i > "$folder/log/slurmctld.out" 2>&1 &
started="$started $!"
for node in slurm1 slurm2; do
    mkdir -p "$folder/spool/$node"
    unshare --uts --pid --fork --kill-child --mount-proc sh -c 'hostname "$1" && exec slurmd -D -N "$1"' sh "$node" \
        > "$folder/log/$node.out" 2>&1 &
    nodes="$nodes $!"
done
for _ in $(seq 3000); do
    [ "$(sinfo --noheader --format=%D --states=idle 2>/dev/null | tr -d ' ')" = 2 ] && { echo up; wait; }
    for pid in $started $nodes; do
        kill -0 "$pid" 2>/dev/null || { echo "one of the daemons has ended, see $folder/log"; exit 1; }
    done
    sleep 0.1
done
echo "the nodes do not answer, see $folder/log"
