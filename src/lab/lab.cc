// SPDX-License-Identifier: Apache-2.0
#include "lab/lab.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "slipstream/base/error.h"

namespace slipstream {
namespace {

constexpr std::string_view kExamples =
    "write RATE, RATE,DELAY or RATE,DELAY,LOSS, for example 100mbit, 1gbit, none, 1gbit,20ms or 100mbit,25ms,0.1%";
constexpr double kMaxDelayMs = 10'000;
constexpr int kHubNumber = 254;
constexpr std::string_view kLongestWait = "100ms";  // in a queue; frames that would wait longer are dropped

// What TCP may keep under way per connection; it uses as much as it needs. Twice 1 Gb/s over a round trip of 250 ms.
constexpr std::int64_t kTcpBufferBytes = 64 << 20;

// A non-negative number followed by one of the units; nothing if the text is anything else.
std::optional<double> number_with_unit(std::string_view text, std::initializer_list<std::string_view> units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (std::string_view known : units) {
    if (unit == known) return number;
  }
  return std::nullopt;
}

std::string ip_of(int number) { return fmt::format("10.88.0.{}", number); }
std::string mac_of(int number) { return fmt::format("02:00:0a:58:00:{:02x}", number); }

// The kernel counts the neighbours of all namespaces together and holds about a thousand: a full mesh of 32 hosts.
// Permanent entries are not counted, and no step of a measurement waits for ARP.
std::string neighbour(int number, std::string_view device) {
  return fmt::format("neigh add {} lladdr {} dev {} nud permanent\n", ip_of(number), mac_of(number), device);
}

// Does this kernel have netem? Tried in a namespace of its own, where nobody notices.
bool kernel_has_netem() {
  try {
    NetNamespace().batch("tc", "qdisc add dev lo root netem delay 1ms\n");
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

double one_ms_bytes(const LabSpec& spec) { return spec.bits_per_second() / 8 / 1000; }

// The token bucket at either end of a cable. It holds 1 ms of the rate, or two frames if that is more. What it holds
// passes an idle cable at memory speed; in a larger bucket this would be whole compressed messages.
std::string rate_limit(const LabSpec& spec) {
  const auto burst = static_cast<std::int64_t>(std::max(3200.0, one_ms_bytes(spec)));
  return fmt::format("tbf rate {} burst {}b latency {}\n", spec.rate, burst, kLongestWait);
}

// Frames are so long that the bucket lets two through, up to a jumbo frame. Buckets cost a timer interrupt per frame:
// with frames of 1500 bytes the lab takes a sixth of the processor from two workers at 100 Mb/s, which no cable does.
int frame_bytes(const LabSpec& spec) {
  constexpr double kHeader = 64;
  return static_cast<int>(std::clamp(one_ms_bytes(spec) / 2 - kHeader, 1500.0, 9000.0));
}

// Lets TCP have a bandwidth-delay product under way, in this thread's namespace; larger limits stay.
void raise_tcp_buffers() {
  for (const char* path : {"/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"}) {
    std::int64_t least = 0, first = 0, most = 0;
    std::ifstream(path) >> least >> first >> most;
    if (most >= kTcpBufferBytes) continue;
    std::ofstream file(path);
    file << least << ' ' << first << ' ' << kTcpBufferBytes << std::flush;
    if (!file) fail<ConfigError>("cannot write {}, which a lab with a delay needs: is /proc/sys read-only here?", path);
  }
}

}  // namespace

LabSpec LabSpec::parse(std::string_view text) {
  // The part before the next comma; removes it from the text.
  const auto next_part = [&text] {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(comma);
    return part;
  };
  // Skips the comma before a further part, if there is one.
  const auto goes_on = [&text] {
    if (text.empty()) return false;
    text.remove_prefix(1);
    return true;
  };
  LabSpec spec{.rate = std::string(next_part())};
  if (spec.rate != "none" && !(spec.bits_per_second() > 0 && std::isfinite(spec.bits_per_second()))) {
    fail<ConfigError>("lab rate `{}` is not a number with bit, kbit, mbit or gbit: {}", spec.rate, kExamples);
  }
  if (!goes_on()) return spec;
  const std::string_view delay = next_part();
  spec.delay_ms = number_with_unit(delay, {"ms"}).value_or(-1);
  if (!(spec.delay_ms >= 0 && spec.delay_ms <= kMaxDelayMs)) {
    fail<ConfigError>("lab delay `{}` is not a number of milliseconds up to {}ms: {}", delay, kMaxDelayMs, kExamples);
  }
  if (!goes_on()) return spec;
  spec.loss_percent = number_with_unit(text, {"%"}).value_or(-1);
  if (!(spec.loss_percent >= 0 && spec.loss_percent < 100)) {
    fail<ConfigError>("lab loss `{}` is not a percentage from 0% to below 100%: {}", text, kExamples);
  }
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
  if (!spec.has_distance()) {
    connect_by_cables(spec);
    limit_hosts(spec, "root");
    limit_hub(spec);
    return;
  }
  if (kernel_has_netem()) {
    connect_by_cables(spec);
    delay_hosts(spec);
    limit_hosts(spec, "parent 1:1");
    limit_hub(spec);
  } else {
    connect_by_switch(spec);
    limit_hosts(spec, "root");  // at the other end the switch limits
  }
  for (const NetNamespace& host : hosts_) host.visit(raise_tcp_buffers);
}

void Lab::connect_by_cables(const LabSpec& spec) {
  std::string at_the_hub = "link add br0 type bridge\n";
  for (int host = 0; host < hosts(); ++host) {
    at_the_hub +=
        fmt::format("link add p{0} mtu {2} type veth peer name e0 mtu {2} netns {1}\nlink set p{0} master br0 up\n",
                    host, hosts_[host].path(), frame_bytes(spec));
  }
  hub_.batch("ip", at_the_hub);
  configure("br0");
}

void Lab::connect_by_switch(const LabSpec& spec) {
  switch_.emplace(DistanceSpec{spec.bits_per_second(), spec.delay_ms, spec.loss_percent / 100}, hosts_, hub_);
  // TCP hands a TAP device everything it may send at once, whereas on a cable it waits for its turn: make room for
  // that.
  for (const NetNamespace& host : hosts_) host.batch("ip", "link set e0 txqueuelen 10000\n");
  configure("e0");
}

// Sets addresses and neighbours.
void Lab::configure(const std::string& hub_device) {
  const auto up = [](int number, std::string_view device) {
    return fmt::format("link set lo up\nlink set {0} address {1}\naddr add {2}/24 dev {0}\nlink set {0} up\n", device,
                       mac_of(number), ip_of(number));
  };
  std::string at_the_hub = up(kHubNumber, hub_device);
  for (int host = 0; host < hosts(); ++host) {
    at_the_hub += neighbour(host + 1, hub_device);
    std::string inside = up(host + 1, "e0") + neighbour(kHubNumber, "e0");
    for (int other = 0; other < hosts(); ++other) {
      if (other != host) inside += neighbour(other + 1, "e0");
    }
    hosts_[host].batch("ip", inside);
  }
  hub_.batch("ip", at_the_hub);
}

// netem at the sending host. The rate limit is put into its class 1:1.
void Lab::delay_hosts(const LabSpec& spec) {
  std::string command = fmt::format("qdisc add dev e0 root handle 1: netem limit 200000 delay {}ms", spec.delay_ms);
  if (spec.loss_percent > 0) command += fmt::format(" loss {}%", spec.loss_percent);
  for (const NetNamespace& host : hosts_) host.batch("tc", command + "\n");
}

void Lab::limit_hosts(const LabSpec& spec, const std::string& place) {
  if (spec.rate == "none") return;
  for (const NetNamespace& host : hosts_) {
    host.batch("tc", fmt::format("qdisc add dev e0 {} {}", place, rate_limit(spec)));
  }
}

void Lab::limit_hub(const LabSpec& spec) {
  if (spec.rate == "none") return;
  std::string ports;
  for (int host = 0; host < hosts(); ++host) ports += fmt::format("qdisc add dev p{} root {}", host, rate_limit(spec));
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
