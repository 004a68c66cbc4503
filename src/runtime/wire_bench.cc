// SPDX-License-Identifier: Apache-2.0
#include "runtime/wire_bench.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <vector>

#include "fabric/c10d_sums.h"
#include "server/client.h"
#include "server/host.h"

namespace slipstream {
namespace {

// Small whole numbers, so that the sum over ranks is exact in every format and every rank knows the result.
float contribution(std::size_t i, int rank) { return static_cast<float>((i + static_cast<std::size_t>(rank)) % 5); }

using Sum = std::function<InFlight(std::span<float>)>;

double timed_sum(Fabric& net, std::vector<float>& values, const Sum& sum) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = contribution(i, net.rank());
  float ready = 0;
  net.sum(std::span(&ready, 1)).wait();  // start together
  const double began = net.clock().now();
  sum(values).wait();
  const double seconds = net.clock().now() - began;
  for (std::size_t i = 0; i < values.size(); ++i) {
    float expected = 0;
    for (int r = 0; r < net.size(); ++r) expected += contribution(i, r);
    if (values[i] != expected) {
      fail<FabricError>("a sum of {} floats came out wrong: element {} is {} and should be {}", values.size(), i,
                        values[i], expected);
    }
  }
  return seconds;
}

// Pushes `size` floats spread over all servers and pulls the result: w <- w - sum of all workers' contributions.
class PushPull {
 public:
  PushPull(Fabric& net, const std::vector<std::size_t>& sizes) : net_(net) {
    if (ServerHost::needed(net)) host_.emplace(net);
    const auto servers = static_cast<std::size_t>(net.servers().count);
    std::vector<ServerPart> parts;
    std::vector<std::uint32_t> next(servers);
    for (const std::size_t size : sizes) {
      first_.push_back(parts.size());
      for (std::size_t s = 0, at = 0; s < servers; ++s) {
        const std::size_t end = size * (s + 1) / servers;
        if (end > at) parts.push_back({at, end - at, static_cast<int>(s), next[s]++});
        at = end;
      }
    }
    first_.push_back(parts.size());
    values_.resize(sizes.back());
    weights_.resize(sizes.back());
    client_.open(net, parts, ServerSetup::Apply::kMean, false, {.lr = 1.0, .momentum = 0.0}, {}, weights_);
  }
  void leave() {
    leave_servers(net_, Goodbye::kDone);
    if (host_) host_->wait();
    host_.reset();
  }

  double timed(std::size_t row, std::int64_t round) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = static_cast<float>(net_.size()) * contribution(i, net_.rank());
    }
    float ready = 0;
    net_.sum(std::span(&ready, 1)).wait();  // start together
    const double began = net_.clock().now();
    std::size_t size = 0;
    for (std::size_t p = first_[row]; p < first_[row + 1]; ++p) {
      const ServerPart& part = client_.parts()[p];
      client_.push_pull(p, part.of(values_), 1.0, part.of(weights_));
      size += part.count;
    }
    client_.wait();
    const double seconds = net_.clock().now() - began;
    for (std::size_t i = 0; i < size; ++i) {
      float expected = 0;
      for (int r = 0; r < net_.size(); ++r) expected -= static_cast<float>(round) * contribution(i, r);
      if (weights_[i] != expected) {
        fail<FabricError>("a push and pull of {} floats came out wrong: element {} is {} and should be {}", size, i,
                          weights_[i], expected);
      }
    }
    return seconds;
  }

 private:
  Fabric& net_;
  std::optional<ServerHost> host_;
  std::vector<std::size_t> first_;  // part, by row
  std::vector<float> values_, weights_;
  ServerClient client_;
};

// One row of the table: `once` is called with 1, 2, … and returns seconds.
void bench_row(bool speaks, std::size_t bytes, std::int64_t repeats, double bus,
               const std::function<double(std::int64_t)>& once) {
  once(1);  // warm-up
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < repeats; ++i) seconds.push_back(once(i + 2));
  std::sort(seconds.begin(), seconds.end());
  const double p50 = seconds[seconds.size() / 2];
  const double p99 = seconds[seconds.size() * 99 / 100];
  const double algorithm = 8e-6 * static_cast<double>(bytes) / p50;
  if (!speaks) return;
  std::printf("| %10zu | %10.3f | %10.3f | %12.1f | %12.1f |\n", bytes, 1e3 * p50, 1e3 * p99, algorithm,
              algorithm * bus);
  std::fflush(stdout);
}

void bench_heading(const std::string& text) {
  std::printf("%s, every result verified\n\n| %10s | %10s | %10s | %12s | %12s |\n|---:|---:|---:|---:|---:|\n",
              text.c_str(), "bytes", "p50 ms", "p99 ms", "alg Mb/s", "bus Mb/s");
}

}  // namespace

namespace {

// Messages between ranks 0 and 1: there and back, and many in one direction. `send` and `recv` block.
struct Messenger {
  std::function<void(std::span<const std::byte>)> send;
  std::function<void(std::span<std::byte>)> recv;
};

void bench_messages(MeshFabric& net, const char* engine, const Messenger& with, std::int64_t repeats) {
  constexpr std::size_t kMany = 2000;
  const bool first = net.rank() == 0;
  if (first) {
    std::printf(
        "\nmessages between two ranks, %s, every one verified\n\n| %10s | %14s | %14s | %12s "
        "|\n|---:|---:|---:|---:|\n",
        engine, "bytes", "one way p50 ms", "one way p99 ms", "messages/s");
  }
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{4} << 10, std::size_t{64} << 10, std::size_t{1} << 20}) {
    std::vector<std::byte> out(bytes), in(bytes);
    std::vector<double> seconds;
    for (std::int64_t i = -5; i < std::max<std::int64_t>(100, repeats); ++i) {  // the first are for warming up
      for (std::size_t b = 0; b < bytes; b += 61) out[b] = static_cast<std::byte>(i + static_cast<std::int64_t>(b));
      const double began = net.clock().now();
      if (first) {
        with.send(out);
        with.recv(in);
        if (in != out) fail<FabricError>("a message of {} bytes came back changed", bytes);
        if (i >= 0) seconds.push_back((net.clock().now() - began) / 2);
      } else {
        with.recv(in);
        with.send(in);
      }
    }
    const double began = net.clock().now();
    for (std::size_t i = 0; bytes == 64 && i < kMany; ++i) first ? with.send(out) : with.recv(in);
    std::byte done{};
    first ? with.recv(std::span(&done, 1)) : with.send(std::span(&done, 1));
    const double rate = static_cast<double>(kMany) / (net.clock().now() - began);
    if (!first) continue;
    std::sort(seconds.begin(), seconds.end());
    std::printf("| %10zu | %14.3f | %14.3f | %12s |\n", bytes, 1e3 * seconds[seconds.size() / 2],
                1e3 * seconds[seconds.size() * 99 / 100], bytes == 64 ? fmt::format("{:.0f}", rate).c_str() : "");
    std::fflush(stdout);
  }
}

}  // namespace

int run_wire_bench(const WireBenchOptions& options, const Rendezvous& at) {
  if (options.max_mib < 1 || options.max_mib > 4096) fail<ConfigError>("--max-mib goes from 1 to 4096");
  if (options.repeats < 1 || options.repeats > 100000) fail<ConfigError>("--repeats goes from 1 to 100000");
  const Wire wire = parse_wire(options.wire);
  const auto fabric = join_fabric(at);
  MeshFabric& net = *fabric;
  const bool speaks = net.rank() == 0;
  std::vector<std::size_t> sizes;  // in floats
  for (std::size_t bytes = sizeof(float); bytes <= static_cast<std::size_t>(options.max_mib) << 20; bytes *= 4) {
    sizes.push_back(bytes / sizeof(float));
  }
  const auto bench_sums = [&](const char* engine, const Sum& sum) {
    if (speaks) {
      bench_heading(fmt::format("sum over {} workers, {}, {}, {}; {} repeats", net.size(), engine, options.wire,
                                net.interface(), options.repeats));
    }
    for (const std::size_t size : sizes) {
      std::vector<float> values(size);
      bench_row(speaks, size * sizeof(float), options.repeats, 2.0 * (net.size() - 1) / net.size(),
                [&](std::int64_t) { return timed_sum(net, values, sum); });
    }
    if (speaks) std::printf("\n");
  };
  bench_sums("mesh", [&](std::span<float> values) { return net.sum(values, wire); });
  const bool compares = net.size() > 1 && !at.encrypted && c10d_sums_are_built();
  const auto c10d = compares ? make_c10d_sums(net) : nullptr;
  if (c10d && wire == Wire::kFp32) bench_sums("c10d", [&](std::span<float> values) { return c10d->sum(values); });

  PushPull servers(net, sizes);
  // What a worker's port carries in each direction: its own messages and, if it hosts a share of the servers, those of
  // that share.
  const bool beside = at.servers == 0;
  const double bus = beside ? 2.0 * (net.size() - 1) / net.size() : 1.0;
  if (speaks) {
    bench_heading(fmt::format("push and pull, {} workers, {} servers{}; {} repeats", net.size(), net.servers().count,
                              beside ? " beside them" : "", options.repeats));
  }
  for (std::size_t row = 0; row < sizes.size(); ++row) {
    bench_row(speaks, sizes[row] * sizeof(float), options.repeats, bus,
              [&](std::int64_t round) { return servers.timed(row, round); });
  }
  servers.leave();

  if (net.size() > 1 && net.rank() < 2) {
    const int other = 1 - net.rank();
    bench_messages(
        net, "mesh",
        {[&](auto bytes) { net.send(other, 1, bytes).wait(); }, [&](auto bytes) { net.recv(other, 1, bytes).wait(); }},
        options.repeats);
    if (c10d) {
      bench_messages(net, "c10d",
                     {[&](auto bytes) { c10d->send(other, bytes); }, [&](auto bytes) { c10d->recv(other, bytes); }},
                     options.repeats);
    }
  }
  float done = 1;
  net.sum(std::span(&done, 1)).wait();  // nobody leaves before all are done
  return 0;
}

}  // namespace slipstream
