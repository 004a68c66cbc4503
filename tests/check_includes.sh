#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check_includes.sh PROJECT_DIR: proves the shape of the house. Which folder of src/ and include/slipstream/ may include
# which (docs/architecture: a folder sees what stands below it), where torch may appear, and that every source opens with
# its licence. Prints each violation as file:line and ends with 1 where there is any. Before that it plants one violation
# of each kind in a scratch directory and fails if it does not find exactly those.
set -euo pipefail

# folder: what it may include besides itself.
readonly MAY_INCLUDE='
base:
wire: base
codec: base
fabric: base wire
model: base checkpoint
optim: base
schedule: base
checkpoint: base
correction: base codec model optim
topology: base wire fabric codec optim
server: base wire fabric optim
strategy: base wire codec fabric model optim schedule correction topology server
task: base model
lab: base
launch: base lab
engine: base checkpoint wire codec fabric model optim schedule correction topology server strategy
report: base checkpoint
compare: base checkpoint lab launch report
web: base wire
sim: base checkpoint fabric optim server strategy task engine
plan: base fabric model optim topology strategy task sim report
watch: base checkpoint fabric lab engine report web
runtime: base wire codec fabric model optim schedule checkpoint correction topology server strategy task lab launch engine plan watch
cli: base wire codec fabric model optim schedule checkpoint correction topology server strategy task lab launch engine sim plan watch runtime report web compare
'
# The torch edges. Every other source compiles without torch.
readonly MAY_SEE_TORCH='^(src/(model/(torch_model|device_copies)\.(h|cc)|fabric/c10d_sums\.cc|task/(models|torch_task)\.(h|cc)|runtime/(session|train|model_file|evaluate)\.(h|cc))|include/slipstream/(runtime/session|model/module_tensors)\.h)$'

find_sources() {  # folders…: the C++ sources below those that exist
  local folder
  for folder in "$@"; do
    if [[ -d $folder ]]; then find "$folder" -type f \( -name '*.h' -o -name '*.cc' \); fi
  done | sort
}

folder_violations() {
  find_sources src include/slipstream | xargs -r awk -v table="$MAY_INCLUDE" -v torch_files="$MAY_SEE_TORCH" '
    BEGIN {
      lines = split(table, line, "\n")
      for (i = 1; i <= lines; ++i) {
        if (split(line[i], side, ":") < 2) continue
        known[side[1]] = 1
        allowed[side[1], side[1]] = 1
        words = split(side[2], word, " ")
        for (w = 1; w <= words; ++w) allowed[side[1], word[w]] = 1
      }
    }
    function report(text) { printf "%s:%d: %s\n", FILENAME, FNR, text }
    FNR == 1 {
      split(FILENAME, part, "/")
      from = part[1] == "src" ? part[2] : part[3]
      if (!(from in known)) report("folder " from " is not in the table of tests/check_includes.sh; add it there")
    }
    match($0, /^[ \t]*#[ \t]*include[ \t]*[<"][^>"]+[>"]/) {
      target = substr($0, RSTART, RLENGTH)
      ours = target ~ /"/
      sub(/^[^<"]*[<"]/, "", target)
      sub(/[>"]$/, "", target)
      if (target ~ /^(torch|ATen|c10|c10d|caffe2)\// && FILENAME !~ torch_files) {
        report("includes <" target ">, but only the torch edges may see torch")
      }
      if (sub(/^slipstream\//, "", target)) ours = 1
      if (!ours) next
      if (split(target, part, "/") < 2) {
        report("includes \"" target "\" without its folder; write \"folder/" target "\"")
      } else if (!((from, part[1]) in allowed)) {
        report(from " includes " target ", but " from " may not know " part[1])
      }
    }'
}

licence_violations() {
  local file
  while read -r file; do
    if ! head -n 1 "$file" | grep -qxF '// SPDX-License-Identifier: Apache-2.0'; then
      echo "$file:1: does not begin with // SPDX-License-Identifier: Apache-2.0"
    fi
  done < <(find_sources src include tests examples bench python)
}

violations() {  # project directory
  (cd "$1" && folder_violations && licence_violations)
}

# One violation of each kind, beside sources that are fine.
self_test() {
  local scratch found expected
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' RETURN
  mkdir -p "$scratch"/src/{base,fabric,runtime,attic} "$scratch"/include/slipstream/{codec,runtime}
  plant() { printf '%b' "$2" > "$scratch/$1"; }
  local spdx='// SPDX-License-Identifier: Apache-2.0\n'
  plant src/runtime/session.cc "$spdx#include <torch/torch.h>\n#include \"fabric/a.h\"\n#include <slipstream/codec/b.h>\n"
  plant include/slipstream/runtime/session.h "$spdx#include <torch/torch.h>\n"
  plant src/base/upward.cc "$spdx#include <vector>\n#include \"runtime/x.h\"\n"
  plant src/fabric/sideways.cc "$spdx  #  include <slipstream/codec/x.h>\n"
  plant src/fabric/torch.cc "$spdx#include <c10/util/Half.h>\n"
  plant src/fabric/torch_quoted.cc "$spdx\n#include \"ATen/ATen.h\"\n"
  plant src/base/bare.cc "$spdx#include \"vec.h\"\n"
  plant src/attic/old.cc "$spdx"
  plant include/slipstream/codec/public.h "\n$spdx#include <slipstream/fabric/x.h>\n"
  found=$(violations "$scratch" | cut -d: -f1,2 | sort -u)
  expected=$(sort -u <<'END'
src/base/upward.cc:3
src/fabric/sideways.cc:2
src/fabric/torch.cc:2
src/fabric/torch_quoted.cc:3
src/base/bare.cc:2
src/attic/old.cc:1
include/slipstream/codec/public.h:1
include/slipstream/codec/public.h:3
END
  )
  if [[ $found != "$expected" ]]; then
    echo "check_includes.sh does not find what was planted; expected (<) and found (>):" >&2
    diff <(echo "$expected") <(echo "$found") >&2 || true
    return 1
  fi
}

if [[ $# -ne 1 || ! -d $1/src ]]; then
  echo "usage: check_includes.sh PROJECT_DIR (the one with src/ in it)" >&2
  exit 2
fi
self_test || exit 1
found=$(violations "$1")
if [[ -n $found ]]; then
  echo "$found"
  exit 1
fi
