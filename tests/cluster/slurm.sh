#!/usr/bin/env bash
# Install and start Slurm on this machine (Debian, as root): one node that is its own controller, for
# tests/cluster/slurm_sweep.py. It keeps a slurm.conf that it did not write.
#
#   tests/cluster/slurm.sh start | stop
set -euo pipefail

conf=/etc/slurm/slurm.conf
mark="# written by tests/cluster/slurm.sh"

start() {
  if ! command -v slurmctld >/dev/null || ! command -v munged >/dev/null; then
    apt-get install -y -q --no-install-recommends slurm-wlm munge
  fi
  if [ -e "$conf" ] && ! grep -qF "$mark" "$conf"; then
    echo "$conf exists and is not of this script; it is left as it is" >&2
    exit 2
  fi
  mkdir -p /etc/slurm /var/spool/slurmctld /var/spool/slurmd /var/log/slurm /run/munge
  chown munge: /run/munge
  local node
  node=$(hostname -s)
  cat >"$conf" <<EOF
$mark
ClusterName=movlr
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
JobRequeue=1
RequeueExit=137
KillWait=5
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
JobCompType=jobcomp/filetxt
JobCompLoc=/var/log/slurm/jobs.txt
MailProg=/bin/true
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$(($(free -m | awk '/^Mem:/ {print $2}') - 1024)) State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
  [ -e /etc/munge/munge.key ] || mungekey --create
  pgrep -x munged >/dev/null || runuser -u munge -- munged
  pgrep -x slurmctld >/dev/null || slurmctld
  pgrep -x slurmd >/dev/null || slurmd
  for _ in $(seq 30); do
    [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && break
    sleep 1
  done
  sinfo
}

stop() {
  for name in slurmd slurmctld; do
    [ -e "/run/$name.pid" ] && kill "$(cat "/run/$name.pid")" || true
  done
  [ -e /run/munge/munged.pid ] && kill "$(cat /run/munge/munged.pid)" || true
}

case "${1:-}" in
  start) start ;;
  stop) stop ;;
  *) echo "usage: $0 start|stop" >&2; exit 2 ;;
esac
