#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Debian 13 as a test machine: makes one in build/debian13 with debootstrap (once, some gigabytes), copies this clone
# into it, and there runs `./run train` for some steps and `./run test-torch` with Debian 13's libtorch 2.6.
#
#   tests/debian13.sh                    all of it
#   tests/debian13.sh COMMAND…           a command of your own instead, in the clone's copy
#
# Packages come from where this machine's own come from: its mirror, its proxy. What is mounted for the test machine lives
# in a mount namespace of its own, and is gone when the last process in it ends, however that happens.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*" >&2; }

if [ "$(id -u)" -ne 0 ]; then
  say "debootstrap and chroot need root: call this as root"
  exit 2
fi
if ! command -v debootstrap >/dev/null; then
  say "installing: debootstrap"
  apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
fi

machine=$PWD/build/debian13
if [ ! -f "$machine/made" ]; then
  say "making $machine"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' | grep -v security | head -n 1 || true)
  mkdir -p "$machine"
  debootstrap --variant=minbase --include=ca-certificates trixie "$machine" ${mirror:+"$mirror"} >build/debian13.log ||
    { tail -n 5 build/debian13.log "$machine/debootstrap/debootstrap.log" >&2; exit 2; }
  touch "$machine/made"
fi
apt-config dump | grep '^Acquire::' >"$machine/etc/apt/apt.conf.d/90host"
cp -L /etc/resolv.conf /etc/hosts "$machine/etc/"

say "copying the clone"
mkdir -p "$machine/slipstream"
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$machine/slipstream"

if [ $# -eq 0 ]; then
  set -- bash -c './run train --steps 50 && ./run test-torch'
fi
exec unshare --mount bash -c '
  for name in dev sys; do mount --rbind "/$name" "$0/$name"; done
  mount -t proc proc "$0/proc"
  exec chroot "$0" env --chdir=/slipstream HOME=/root LC_ALL=C.UTF-8 "$@"' "$machine" "$@"
