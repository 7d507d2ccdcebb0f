#!/usr/bin/env bash
# Run the steps of the Dockerfile (CPU variant) in a clean Debian: no Docker needed, but root and debootstrap.
#
#   tests/cluster/container_steps.sh /tmp/movlr-chroot
set -euo pipefail

root=${1:?the folder of the new system}
here=$(cd "$(dirname "$0")/../.." && pwd)
mirror=${MIRROR:-http://deb.debian.org/debian}

command -v debootstrap >/dev/null || apt-get install -y -q --no-install-recommends debootstrap
[ -e "$root/bin/sh" ] || debootstrap --variant=minbase bookworm "$root" "$mirror"
cp /etc/resolv.conf "$root/etc/resolv.conf"
[ -e /etc/pip.conf ] && cp /etc/pip.conf "$root/etc/pip.conf"
cp -r /etc/apt/sources.list* /etc/apt/apt.conf.d "$root/etc/apt/" 2>/dev/null || true
for ca in /usr/local/share/ca-certificates /etc/ssl/certs; do
  [ -d "$ca" ] && mkdir -p "$root$ca" && cp -rL --remove-destination "$ca/." "$root$ca/"
done
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mountpoint -q "$root/dev" || mount --rbind /dev "$root/dev"
trap 'umount "$root/proc"; umount -R -l "$root/dev"' EXIT

mkdir -p "$root/opt/movlr-jax"
git -C "$here" archive HEAD | tar -x -C "$root/opt/movlr-jax"

# the RUN lines of the stages base, cpu and the last one, in order, and the environment of the first
python3 - "$here/Dockerfile" >"$root/steps.sh" <<'PY'
import re, sys

text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", open(sys.argv[1]).read(), flags=re.M))
stage, print_it = "", print
print_it("set -ex")
for line in text.splitlines():
    if line.startswith("FROM"):
        stage = line.split()[-1]
    elif stage != "cuda" and line.startswith("ENV"):
        for name, value in re.findall(r"(\w+)=(\S+)", line):
            print_it(f'export {name}="{value}"')
    elif stage != "cuda" and line.startswith("WORKDIR"):
        print_it(f"mkdir -p {line.split()[1]} && cd {line.split()[1]}")
    elif stage != "cuda" and line.startswith("RUN"):
        print_it(line.removeprefix("RUN "))
PY
forwarded=()
for name in http_proxy https_proxy HTTP_PROXY HTTPS_PROXY no_proxy NO_PROXY PIP_INDEX_URL PIP_CERT SSL_CERT_FILE; do
  [ -n "${!name:-}" ] && forwarded+=("$name=${!name}")
done
chroot "$root" /usr/bin/env "${forwarded[@]}" sh /steps.sh
chroot "$root" runuser -u movlr -- sh -c 'cd /work && export PATH=/opt/movlr/bin:$PATH && movlr-jax doctor; \
  movlr-jax search +task=bottle_pour candidates=2 generations=1 episode_s=0.16 optimizer.mppi.samples=4'
