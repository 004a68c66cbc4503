// SPDX-License-Identifier: Apache-2.0
#include "lab/lab.h"

#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "slipstream/base/error.h"

namespace slipstream {
namespace {

constexpr std::string_view kExamples = "write for example 100mbit, 1gbit, none, or with a delay 1gbit,20ms";
constexpr double kMaxDelayMs = 10'000;
constexpr int kHubNumber = 254;

// A positive number followed by one of the units; nothing if the text is anything else.
std::optional<double> number_with_unit(std::string_view text, std::initializer_list<std::string_view> units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number) || number <= 0) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (std::string_view known : units) {
    if (unit == known) return number;
  }
  return std::nullopt;
}

std::string ip_of(int number) { return fmt::format("10.88.0.{}", number); }
std::string mac_of(int number) { return fmt::format("02:00:0a:58:00:{:02x}", number); }

// The kernel counts the neighbours of all namespaces together and holds about a thousand: a full mesh of 32 hosts.
// Fixed entries are not counted, and no step of a measurement waits for ARP.
std::string neighbour(int number, std::string_view device) {
  return fmt::format("neigh add {} lladdr {} dev {} nud permanent\n", ip_of(number), mac_of(number), device);
}

}  // namespace

LabSpec LabSpec::parse(std::string_view text) {
  const std::size_t comma = text.find(',');
  LabSpec spec{.rate = std::string(text.substr(0, comma)), .delay_ms = 0};
  if (spec.rate != "none" && !number_with_unit(spec.rate, {"bit", "kbit", "mbit", "gbit"})) {
    fail<ConfigError>("lab rate `{}` is not a number with bit, kbit, mbit or gbit: {}", spec.rate, kExamples);
  }
  if (comma == std::string_view::npos) return spec;
  const std::string_view delay = text.substr(comma + 1);
  const std::optional<double> delay_ms = number_with_unit(delay, {"ms"});
  if (!delay_ms || *delay_ms > kMaxDelayMs) {
    fail<ConfigError>("lab delay `{}` is not a number of milliseconds up to {}ms: {}", delay, kMaxDelayMs, kExamples);
  }
  spec.delay_ms = *delay_ms;
  return spec;
}

double LabSpec::bits_per_second() const {
  for (const auto& [unit, factor] : {std::pair{"bit", 1.0}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}) {
    if (const auto number = number_with_unit(rate, {unit})) return *number * factor;
  }
  return std::numeric_limits<double>::infinity();
}

void Lab::require_root() {
  if (NetNamespace::permitted()) return;
  fail<ConfigError>(
      "a network lab needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN) to make its interfaces: run the same "
      "command as root, or without the lab");
}

Lab::Lab(const LabSpec& spec, int hosts) {
  if (hosts < 1 || hosts > kMaxHosts) fail<ConfigError>("a lab has 1 to {} hosts, not {}", kMaxHosts, hosts);
  hosts_.reserve(static_cast<std::size_t>(hosts));
  for (int host = 0; host < hosts; ++host) hosts_.emplace_back();
  connect();
  if (spec.delay_ms > 0) delay(spec.delay_ms);
  if (spec.rate != "none") limit(spec.rate, spec.delay_ms > 0 ? "parent 1:1" : "root");
}

// Cables, addresses and neighbours.
void Lab::connect() {
  std::string at_the_hub = fmt::format("link set lo up\nlink add br0 address {} type bridge\n", mac_of(kHubNumber));
  at_the_hub += fmt::format("addr add {}/24 dev br0\nlink set br0 up\n", hub_address());
  for (int host = 0; host < hosts(); ++host) {
    at_the_hub += fmt::format("link add p{} type veth peer name e0 address {} netns {}\n", host, mac_of(host + 1),
                              hosts_[host].path());
    at_the_hub += fmt::format("link set p{} master br0 up\n", host) + neighbour(host + 1, "br0");
  }
  hub_.batch("ip", at_the_hub);

  for (int host = 0; host < hosts(); ++host) {
    std::string inside = fmt::format("link set lo up\naddr add {}/24 dev e0\nlink set e0 up\n", address(host));
    for (int other = 0; other < hosts(); ++other) {
      if (other != host) inside += neighbour(other + 1, "e0");
    }
    hosts_[host].batch("ip", inside + neighbour(kHubNumber, "e0"));
  }
}

// At the sending host. Its class 1:1 is where the rate limit is put in.
void Lab::delay(double delay_ms) {
  const std::string command = fmt::format("qdisc add dev e0 root handle 1: netem delay {}ms limit 100000\n", delay_ms);
  try {
    for (const NetNamespace& host : hosts_) host.batch("tc", command);
  } catch (const ConfigError& error) {
    fail<ConfigError>("this kernel cannot delay packets, it seems to have no netem: leave out \",{}ms\"\n{}", delay_ms,
                      error.what());
  }
}

// At both ends of every cable. Burst and latency as in the lab whose figures the documentation quotes: 94-99 % of the
// rate arrives.
void Lab::limit(const std::string& rate, const std::string& place_at_host) {
  const std::string queue = fmt::format("tbf rate {} burst 128kb latency 100ms\n", rate);
  std::string ports;
  for (int host = 0; host < hosts(); ++host) {
    hosts_[host].batch("tc", fmt::format("qdisc add dev e0 {} {}", place_at_host, queue));
    ports += fmt::format("qdisc add dev p{} root {}", host, queue);
  }
  hub_.batch("tc", ports);
}

void Lab::check_host(int host) const {
  check(host >= 0 && host < hosts(), "host {} of a lab with {} hosts", host, hosts());
}

std::string Lab::address(int host) const {
  check_host(host);
  return ip_of(host + 1);
}

std::string Lab::hub_address() const { return ip_of(kHubNumber); }

void Lab::enter(int host) const {
  check_host(host);
  hosts_[host].enter();
}

void Lab::at_hub(const std::function<void()>& f) const { hub_.visit(f); }

std::string Lab::output_at(int host, const std::string& tool, const std::string& command) const {
  check_host(host);
  return hosts_[host].output(tool, command);
}

}  // namespace slipstream
