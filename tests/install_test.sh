#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install_test.sh PROJECT_DIR BUILD_DIR: what a user of the installed library does. Installs the build tree to a scratch
# prefix, builds examples/ as a project of its own that knows nothing but that prefix, and trains a few steps with it.
set -euo pipefail

if [[ $# -ne 2 || ! -f $2/cmake_install.cmake ]]; then
  echo "usage: install_test.sh PROJECT_DIR BUILD_DIR (a configured and built one)" >&2
  exit 2
fi
project=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  echo "install_test.sh: $1" >&2
  exit 1
}

cmake --install "$build" --prefix "$scratch/prefix" > "$scratch/install.log" || fail "cmake --install failed"
"$scratch/prefix/bin/slipstream" --version | grep -q '^slipstream [0-9]' || fail "the installed program does not run"

# A copy: were the sources beside ours, a forgotten header might be found there.
cp -r "$project/examples" "$scratch/examples"
cmake -G Ninja -S "$scratch/examples" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  > "$scratch/configure.log" 2>&1 || { cat "$scratch/configure.log" >&2; fail "find_package(slipstream) failed"; }
grep -q "^slipstream_DIR:PATH=$scratch/prefix" "$scratch/build/CMakeCache.txt" || fail "found another slipstream than ours"
cmake --build "$scratch/build" --target example_plain_loop > "$scratch/build.log" 2>&1 ||
  { tail -40 "$scratch/build.log" >&2; fail "the example does not build against the installed library"; }
! grep -q "warning:" "$scratch/build.log" || { cat "$scratch/build.log" >&2; fail "the public headers give warnings"; }
! grep -rqF "$project" "$scratch/prefix/lib/cmake" "$scratch/prefix/include" ||
  fail "the installed package points into the source tree"

# Alone, whatever started this test.
for variable in RANK WORLD_SIZE OMPI_COMM_WORLD_RANK SLURM_PROCID; do unset "$variable"; done
"$scratch/build/example_plain_loop" 50 > "$scratch/output" || fail "the example failed"
grep -q '^step   50  loss 0\.' "$scratch/output" || { cat "$scratch/output" >&2; fail "no loss after 50 steps"; }
grep -q '^worker 0 of 1: ' "$scratch/output" || { cat "$scratch/output" >&2; fail "no result"; }
