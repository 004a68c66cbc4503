// SPDX-License-Identifier: Apache-2.0
//
// The local supervisor: holds the rendezvous store, so that any worker may die, and names the one that did.
#include <slipstream/base/error.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "runtime/crew.h"
#include "runtime/lab.h"
#include "runtime/launch.h"

namespace slipstream {

int supervise(const LaunchOptions& options, int workers, const std::vector<std::string>& command) {
  std::optional<Lab> lab;
  if (!options.lab.empty()) lab.emplace(LabSpec::parse(options.lab), workers);
  std::optional<StoreHost> store;
  const auto open_store = [&] { store.emplace(static_cast<int>(options.master_port)); };
  lab ? lab->at_hub(open_store) : open_store();

  // Workers share the machine: unless the user said otherwise, each computes with its share of the cores.
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency() / static_cast<unsigned>(workers));
  std::vector<CrewMember> members;
  for (int r = 0; r < workers; ++r) {
    CrewMember member{command, [&lab, r, threads] {
                        if (lab) lab->enter(r);
                        for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
                          setenv(name, std::to_string(threads).c_str(), 0);
                        }
                      }};
    for (const auto& [flag, value] : {std::pair<std::string, std::string>{"--rank", std::to_string(r)},
                                      {"--world-size", std::to_string(workers)},
                                      {"--master-addr", lab ? lab->hub_address() : "127.0.0.1"},
                                      {"--master-port", std::to_string(store->port())}}) {
      member.command.push_back(flag);
      member.command.push_back(value);
    }
    member.command.emplace_back("--supervised");
    members.push_back(std::move(member));
  }

  const CrewOutcome outcome = run_crew(std::move(members), [&store](const CrewFailure& failure) {
    const std::string text = fmt::format("worker {} {}", failure.member, failure.how);
    store->announce_failure(text + "; the job cannot go on without it");
    if (failure.exit_code >= 126) std::fprintf(stderr, "slipstream: %s\n", text.c_str());  // it could not say so itself
  });
  if (outcome.interrupted) return 130;
  if (!outcome.first_failure) return 0;
  const int code = outcome.first_failure->exit_code;
  return code >= 126 ? FabricError("").exit_code() : code;
}

}  // namespace slipstream
