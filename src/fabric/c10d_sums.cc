// SPDX-License-Identifier: Apache-2.0
#include "fabric/c10d_sums.h"

#include <slipstream/base/error.h>
#include <torch/torch.h>

#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#ifdef SLIPSTREAM_GLOO  // the headers of the Gloo that this torch was built with are there
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif
#if __has_include(<torch/csrc/distributed/c10d/GroupRegistry.hpp>)  // since torch 2.2
#define SLIPSTREAM_NAMED_GROUPS
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "fabric/own_address.h"

namespace slipstream {
namespace {

using Millis = std::chrono::milliseconds;
using Bytes = std::vector<std::uint8_t>;

Millis to_millis(double seconds) { return Millis(static_cast<std::int64_t>(seconds * 1000)); }

// The first line of a c10 or gloo message, without source positions and stack.
std::string first_line(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  if (!line.empty() && line[0] == '[') {
    if (const auto end = line.find("] "); end != std::string::npos) line.erase(0, end + 2);
  }
  return line;
}

// One sum by a c10d::ProcessGroup. A thread of c10d reports its end, under the mesh's mutex.
class C10dSum final : public Operation {
 public:
  template <typename Group>
  C10dSum(std::shared_ptr<MeshCore> mesh, Group& group, std::span<float> values)
      : mesh_(std::move(mesh)), count_(values.size()), ending_(std::make_shared<Ending>()) {
    const auto report = [mesh = mesh_, ending = ending_](std::string error) {
      const std::lock_guard lock(mesh->mutex);
      ending->finished = true;
      ending->error = std::move(error);
      ending->at = mesh->clock.now();
      mesh->changed.notify_all();
    };
    std::vector<torch::Tensor> tensors{
        torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, torch::kFloat)};
    try {
      work_ = group.allreduce(tensors);
      work_->getFuture()->addCallback([report](c10::ivalue::Future& f) {
        report(f.hasError() ? f.tryRetrieveErrorMessage() + " " : std::string());
      });
    } catch (const std::exception& e) {
      try {
        if (work_) work_->wait();  // it uses the memory
      } catch (const std::exception&) {
      }
      report(std::string(e.what()) + " ");
    }
  }
  ~C10dSum() override {  // c10d uses the memory until it ends the sum, at the latest by its timeout
    std::unique_lock lock(mesh_->mutex);
    mesh_->changed.wait(lock, [this] { return ending_->finished; });
  }
  void wait() override {
    std::unique_lock lock(mesh_->mutex);
    const std::string what = fmt::format("sum of {} floats", count_);
    mesh_->waiting_for = what;
    const std::chrono::duration<double> timeout(mesh_->patience.waiting());
    mesh_->changed.wait_for(lock, timeout, [this] { return ending_->finished || mesh_->failure; });
    mesh_->waiting_for.clear();
    mesh_->patience.waited_until(mesh_->clock.now());
    if (ending_->finished && ending_->error.empty()) return;
    // The mesh knows better who is to blame: give it a moment to say so.
    mesh_->changed.wait_for(lock, std::chrono::seconds(2), [this] { return mesh_->failure.has_value(); });
    if (!mesh_->failure) {
      const std::string text = fmt::format(
          "{} gave up on a {}: {}", mesh_->name(mesh_->rank()), what,
          ending_->finished ? first_line(ending_->error) : fmt::format("no answer within {:.0f} s", timeout.count()));
      lock.unlock();
      mesh_->fail(text);
      lock.lock();
    }
    mesh_->throw_failure();
  }
  bool done() override {
    const std::lock_guard lock(mesh_->mutex);
    return ending_->finished || mesh_->failure;
  }
  double finished_at() const override { return ending_->at; }

 private:
  struct Ending {
    bool finished = false;
    std::string error;
    double at = 0;
  };
  const std::shared_ptr<MeshCore> mesh_;
  const std::size_t count_;
  const std::shared_ptr<Ending> ending_;
  c10::intrusive_ptr<c10d::Work> work_;
};

#ifdef SLIPSTREAM_GLOO

constexpr Tag kStoreTag = 0x40000010;

// Where Gloo's ranks tell each other their addresses: what one sets, all have. Goes over the mesh, so that no stranger
// can.
class MeshStore final : public c10d::Store, public Listener {
 public:
  MeshStore(MeshFabric& net, double timeout_seconds) : c10d::Store(to_millis(timeout_seconds)), net_(net) {
    net.listen(kStoreTag, this);
  }
  ~MeshStore() override { net_.listen(kStoreTag, nullptr); }
  // Pure virtual since torch 2.9, absent before.
  c10::intrusive_ptr<c10d::Store> clone() { return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this); }  // NOLINT

  void set(const std::string& key, const Bytes& value) override {
    LetterHead head{};
    const std::uint64_t length = key.size();
    std::memcpy(head.data(), &length, sizeof length);
    Bytes body(key.begin(), key.end());
    body.insert(body.end(), value.begin(), value.end());
    keep(key, value);
    std::vector<InFlight> sends;
    for (int r = 0; r < net_.size(); ++r) {
      if (r != net_.rank()) sends.push_back(net_.send(r, kStoreTag, head, std::as_bytes(std::span(body))));
    }
    for (InFlight& send : sends) send.wait();
  }
  Bytes get(const std::string& key) override {
    wait({key}, timeout_);
    const std::lock_guard lock(mutex_);
    return values_.at(key);
  }
  bool check(const std::vector<std::string>& keys) override {
    const std::lock_guard lock(mutex_);
    return has(keys);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const Millis& timeout) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return has(keys) || failure_; });
    if (!has(keys)) throw std::runtime_error(failure_.value_or("the other ranks did not tell where they are"));
  }
  int64_t getNumKeys() override {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(values_.size());
  }
  Bytes compareSet(const std::string&, const Bytes&, const Bytes&) override { return unused("compareSet"), Bytes(); }
  int64_t add(const std::string&, int64_t) override { return unused("add"), 0; }
  bool deleteKey(const std::string&) override { return unused("deleteKey"), false; }

 private:
  static void unused(const char* what) { slipstream::fail<Error>("c10d asks the mesh's store for {}", what); }
  bool has(const std::vector<std::string>& keys) const {
    return std::all_of(keys.begin(), keys.end(), [this](const auto& key) { return values_.count(key) > 0; });
  }
  void keep(const std::string& key, Bytes value) {
    const std::lock_guard lock(mutex_);
    values_[key] = std::move(value);
    changed_.notify_all();
  }

  void begins(int, Tag, const LetterHead&, std::uint64_t body_bytes) override {
    if (body_bytes > (1 << 20)) slipstream::fail<FabricError>("an address of {} bytes is refused", body_bytes);
  }
  void arrived(int, Tag, const LetterHead& head, std::span<const std::byte> body, Answers&) override {
    std::uint64_t length = 0;
    std::memcpy(&length, head.data(), sizeof length);
    if (length > body.size()) slipstream::fail<FabricError>("an address is refused: its key is cut");
    const auto* text = reinterpret_cast<const char*>(body.data());
    keep(std::string(text, length), Bytes(text + length, text + body.size()));
  }
  void failed(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    failure_ = text;
    changed_.notify_all();
  }

  MeshFabric& net_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, Bytes> values_;
  std::optional<std::string> failure_;
};

class C10dSums final : public C10dEngine {
 public:
  explicit C10dSums(MeshFabric& net) : mesh_(net.core()) {
    // Gloo writes to sockets whose peer may just have died: without this, SIGPIPE would end us before the error is
    // reported.
    struct sigaction current = {};
    sigaction(SIGPIPE, nullptr, &current);
    if (current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
    auto options = c10d::ProcessGroupGloo::Options::create();
    options->timeout = to_millis(Patience(net.at().timeout_seconds).waiting());  // Gloo cannot change it later
    const std::string address = net.interface().substr(0, net.interface().find(' '));
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
    try {
      store_ = c10::make_intrusive<MeshStore>(net, net.at().join_timeout_seconds);
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, net.rank(), net.size(), options);
    } catch (const std::exception& e) {
      slipstream::fail<FabricError>("rank {} cannot connect c10d to the other ranks from {}: {}", net.rank(), address,
                                    first_line(e.what()));
    }
  }
  InFlight sum(std::span<float> values) override { return InFlight(std::make_unique<C10dSum>(mesh_, *group_, values)); }
  void send(int to, std::span<const std::byte> bytes) override {
    std::vector<torch::Tensor> tensors{view(sendable(bytes))};
    group_->send(tensors, to, 0)->wait();
  }
  void recv(int from, std::span<std::byte> bytes) override {
    std::vector<torch::Tensor> tensors{view(bytes)};
    group_->recv(tensors, from, 0)->wait();
  }

 private:
  static torch::Tensor view(std::span<std::byte> bytes) {
    return torch::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, torch::kByte);
  }

  const std::shared_ptr<MeshCore> mesh_;
  c10::intrusive_ptr<MeshStore> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

#endif  // SLIPSTREAM_GLOO

#ifdef SLIPSTREAM_NAMED_GROUPS

// Sums by a process group that the program has made itself, of whatever backend, over that group's own connections.
class GroupSums final : public DenseSums {
 public:
  explicit GroupSums(MeshFabric& net) : mesh_(net.core()) {
    std::vector<torch::Tensor> one{torch::ones({1})};
    try {
      group_ = c10d::resolve_process_group(net.at().process_group);
      const auto work = group_->allreduce(one);
      work->getFuture();  // by which sums tell their end
      work->wait(to_millis(net.at().join_timeout_seconds));
    } catch (const std::exception& e) {
      fail<ConfigError>(
          "sums=c10d: the process group cannot sum on the CPU ({}); make it with a backend that can, such as "
          "init_process_group(\"cpu:gloo,cuda:nccl\"), or leave sums=c10d out",
          first_line(e.what()));
    }
    if (group_->getSize() != net.size() || group_->getRank() != net.rank()) {
      fail<ConfigError>(
          "sums=c10d: the process group has {} ranks, of which this is {}, and the job {}, of which this is {}",
          group_->getSize(), group_->getRank(), net.size(), net.rank());
    }
  }
  InFlight sum(std::span<float> values) override { return InFlight(std::make_unique<C10dSum>(mesh_, *group_, values)); }

 private:
  const std::shared_ptr<MeshCore> mesh_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

std::unique_ptr<DenseSums> make_group_sums(MeshFabric& net) { return std::make_unique<GroupSums>(net); }

#else

std::unique_ptr<DenseSums> make_group_sums(MeshFabric&) {
  fail<ConfigError>("sums=c10d uses your process group with torch 2.3 and later; this is {}: leave it out",
                    TORCH_VERSION);
}

#endif  // SLIPSTREAM_NAMED_GROUPS

// Only a server needs libuv. Debian's torch has none and would refuse the default of torch 2.4 and later.
template <typename Options>
void without_libuv(Options& options) {
  if constexpr (requires { options.useLibUV; }) options.useLibUV = false;
}

// Keeps c10d from logging dozens of lines where our one line says what is wrong, unless TORCH_CPP_LOG_LEVEL asks for
// them.
class QuietC10d {
 public:
  QuietC10d() { set("FATAL"); }
  ~QuietC10d() { set("WARNING"); }  // its default
  QuietC10d(const QuietC10d&) = delete;
  QuietC10d& operator=(const QuietC10d&) = delete;

 private:
  void set(const char* level) const {
    if (chosen_) return;
    setenv(kName, level, 1);
    c10::initLogging();
    unsetenv(kName);
  }
  static constexpr const char* kName = "TORCH_CPP_LOG_LEVEL";
  const bool chosen_ = std::getenv(kName) != nullptr;
};

// Under torchrun rank 0 tells the others where to meet, and the job's key, through the store of torchrun's agent.
std::unique_ptr<MeshFabric> join_through_store(Rendezvous at) {
  const QuietC10d quiet;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(at.master_port);
  options.waitWorkers = false;
  options.timeout = to_millis(at.join_timeout_seconds);
  without_libuv(options);
  c10::intrusive_ptr<c10d::TCPStore> store;
  const std::string key = "slipstream/" + at.store_prefix;
  try {
    store = c10::make_intrusive<c10d::TCPStore>(at.master_addr, options);
  } catch (const std::exception& e) {
    fail<FabricError>("torchrun's store does not answer at {}:{} ({})", at.master_addr, at.master_port,
                      first_line(e.what()));
  }
  Roster meeting;
  if (at.rank == 0) {
    at.hosts = true;
    if (!at.encrypted) at.key = random_key();
    at.master_addr = address_towards(at.master_addr, at.master_port);
    at.master_port = 0;
    return std::make_unique<MeshFabric>(at, [&](int port) {
      meeting.ranks = {{0, {at.master_addr, port}}};
      if (!at.encrypted) meeting.key = at.key;
      const std::string text = meeting.to_text();
      store->set(key, Bytes(text.begin(), text.end()));
    });
  }
  try {
    const Bytes bytes = store->get(key);
    meeting = Roster::from_text(std::string(bytes.begin(), bytes.end()));
  } catch (const std::exception&) {
    fail<FabricError>("rank 0 did not join within {:.0f} s", at.join_timeout_seconds);
  }
  at.master_addr = meeting.ranks.at(0).address.host;
  at.master_port = meeting.ranks.at(0).address.port;
  if (!at.encrypted) at.key = meeting.key;
  return std::make_unique<MeshFabric>(at);
}

}  // namespace

#ifdef SLIPSTREAM_GLOO
bool c10d_sums_are_built() { return true; }
std::unique_ptr<C10dEngine> make_c10d_sums(MeshFabric& net) { return std::make_unique<C10dSums>(net); }
#else
bool c10d_sums_are_built() { return false; }
std::unique_ptr<C10dEngine> make_c10d_sums(MeshFabric&) {
  fail<ConfigError>(
      "--sums c10d is not in this build: the torch it was built with ({}) comes without Gloo's headers; leave it out, "
      "or build with Debian's libtorch-dev and libgloo-dev",
      TORCH_VERSION);
}
#endif

std::unique_ptr<MeshFabric> join_fabric(const Rendezvous& at) {
  if (at.rank == 0 && (at.size + at.servers > 1 || at.elastic()) && !at.encrypted && !at.supervised) {
    std::fprintf(
        stderr,
        "slipstream: no secret was given: whoever reaches %s:%d can join this job or read it; --secret-file or "
        "SLIPSTREAM_SECRET close and encrypt it\n",
        at.master_addr.c_str(), at.master_port);
  }
  auto net = at.store_prefix.empty() ? std::make_unique<MeshFabric>(at) : join_through_store(at);
  if (at.sums == "c10d" && net->size() > 1 && !at.serves()) {
    at.process_group.empty() ? net->use(make_c10d_sums(*net)) : net->use(make_group_sums(*net));
  }
  return net;
}

}  // namespace slipstream
