// SPDX-License-Identifier: Apache-2.0
//
// EDGE 2: with model/torch_model.cc the only library source that speaks torch.
#include <slipstream/base/error.h>
#include <slipstream/fabric/c10d_fabric.h>
#include <torch/torch.h>

#include <array>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "fabric/handover.h"
#include "fabric/lane.h"
#include "fabric/own_address.h"
#include "fabric/wire.h"

namespace slipstream {
namespace {

using Millis = std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

constexpr const char* kFailureKey = "slipstream/failure";
constexpr auto kBeat = Millis(500);
constexpr auto kForever = std::chrono::duration_cast<Millis>(std::chrono::hours(24 * 365));  // while all are alive

Millis to_millis(double seconds) { return Millis(static_cast<std::int64_t>(seconds * 1000)); }
std::vector<std::uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string beat_key(int rank) { return fmt::format("slipstream/beat/{}", rank); }

// The first line of a c10 or gloo message, without source positions and stack.
std::string first_line(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  if (!line.empty() && line[0] == '[') {
    if (const auto end = line.find("] "); end != std::string::npos) line.erase(0, end + 2);
  }
  return line;
}

StorePtr open_store(const std::string& host, int port, bool server, double timeout_seconds) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = server;
  options.waitWorkers = false;
  options.timeout = to_millis(timeout_seconds);
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const std::exception& e) {
    const std::string why = first_line(e.what());
    if (server) {
      fail<ConfigError>(
          "cannot open the rendezvous store on port {}: the port is in use or not ours to take ({}); "
          "choose another with --master-port",
          port, why);
    }
    fail<FabricError>(
        "no rendezvous store answers at {}:{} ({}); is rank 0 running there, and do --master-addr and "
        "--master-port name it?",
        host, port, why);
  }
}

template <typename T>
torch::Tensor bytes_view(std::span<T> values) {
  return torch::from_blob(const_cast<std::remove_const_t<T>*>(values.data()),
                          {static_cast<std::int64_t>(values.size_bytes())}, torch::kByte);
}

}  // namespace

struct C10dFabric::State {
  Rendezvous at;
  SteadyClock clock;
  std::string address;    // of ours that the data goes through
  std::string interface;  // the same, for people
  StorePtr server;        // only where this process hosts the store
  StorePtr store;         // used by the process groups
  StorePtr monitor;       // a connection of its own, used by the monitor thread and after failures
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> half_group;  // of the lane alone, so that its order is its own

  std::mutex mutex;
  std::condition_variable changed;     // an operation ended, a failure was announced, or we close
  std::optional<std::string> failure;  // what was announced
  bool closing = false;
  std::mutex monitor_mutex;  // guards `monitor`
  std::thread watcher;

  int servers = 0;                                                  // that are open
  std::array<c10::intrusive_ptr<c10d::ProcessGroupGloo>, 2> wires;  // by lane: all workers and servers
  std::map<std::pair<int, Tag>, Lane> receiving;                    // by peer and lane: who waits for its messages
  std::map<Tag, Lane> sending;
  std::thread host;                                                       // of the server beside this worker …
  bool abandoned = false;                                                 // by this worker
  std::shared_ptr<State> hosted;                                          // … and its endpoint, once there
  std::array<std::shared_ptr<Handover>, 2> to_neighbour, from_neighbour;  // by lane: worker and server of one process
  std::optional<Lane> lane;                                               // last: its thread ends first

  explicit State(const Rendezvous& rendezvous) : at(rendezvous) {}
  void join();
  void await_ranks(int first, int last);
  c10::intrusive_ptr<c10d::ProcessGroupGloo> make_group(const std::string& name, int ranks);
  void open_wires(int count);
  bool over_wires(int peer) const { return peer >= at.size || at.serves(); }
  bool is_neighbour(int peer) const { return to_neighbour[0] && peer % at.size == at.rank % at.size; }
  std::string name_of(int peer) const;
  void abandon();
  void watch();
  std::vector<int> silent_ranks();
  [[noreturn]] void give_up(const std::string& what, const std::string& why);
  void sum_half(std::span<float> values, Wire wire);
};

c10::intrusive_ptr<c10d::ProcessGroupGloo> C10dFabric::State::make_group(const std::string& name, int ranks) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->timeout = to_millis(at.timeout_seconds);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  try {
    return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store), at.rank,
                                                       ranks, options);
  } catch (const std::exception& e) {
    fail<FabricError>("cannot connect to the other ranks from {}: {}", address, first_line(e.what()));
  }
}

std::string C10dFabric::State::name_of(int peer) const {
  return peer < at.size ? fmt::format("rank {}", peer) : fmt::format("server {} (rank {})", peer - at.size, peer);
}

// Waits for the first sign of life of ranks first … last-1.
void C10dFabric::State::await_ranks(int first, int last) {
  std::vector<std::string> keys;
  for (int r = first; r < last; ++r) keys.push_back(beat_key(r));
  try {
    store->wait(keys, to_millis(at.join_timeout_seconds));
  } catch (const std::exception&) {
    std::vector<std::string> missing;
    for (int r = first; r < last; ++r) {
      if (!store->check({beat_key(r)})) missing.push_back(name_of(r));
    }
    fail<FabricError>("{} of {} did not join within {:.0f} s", fmt::join(missing, ", "), last, at.join_timeout_seconds);
  }
}

void C10dFabric::State::open_wires(int count) {
  await_ranks(at.size, at.size + count);
  wires[kUrgent] = make_group("urgent", at.size + count);
  wires[kBackground] = make_group("background", at.size + count);
  const std::lock_guard lock(mutex);
  servers = count;
}

void C10dFabric::State::join() {
  // Gloo writes to sockets whose peer may just have died. Without this the signal ends us before the error names it;
  // under Python nobody notices, because it ignores the signal, too.
  struct sigaction current = {};
  sigaction(SIGPIPE, nullptr, &current);
  if (current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
  if (at.interface.empty()) {
    address = address_towards(at.master_addr, at.master_port);
  } else {
    address = interface_match(at.interface, "");
    if (address.empty())
      fail<ConfigError>("there is no network interface '{}' with an IPv4 address here", at.interface);
  }
  if (at.hosts_store) server = open_store("0.0.0.0", at.master_port, true, at.join_timeout_seconds);
  store = open_store(at.master_addr, at.master_port, false, at.join_timeout_seconds);
  monitor = open_store(at.master_addr, at.master_port, false, at.join_timeout_seconds);

  if (store->add(beat_key(at.rank), 1) != 1) {
    fail<ConfigError>("two processes claim rank {} of this job; give every process its own --rank", at.rank);
  }
  await_ranks(0, at.size);
  if (!at.serves()) group = make_group("group", at.size);
  const std::string name = interface_match("", address);
  interface = name.empty() ? address : address + " on " + name;
  watcher = std::thread([this] { watch(); });
}

// Shows a sign of life and looks for announced failures, until the fabric closes or the store is gone (as it is when
// rank 0 ends first; an operation that fails then says so itself).
void C10dFabric::State::watch() {
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, kBeat, [this] { return closing; })) {
    lock.unlock();
    std::optional<std::string> text;
    try {
      const std::lock_guard guard(monitor_mutex);
      monitor->add(beat_key(at.rank), 1);
      if (monitor->check({kFailureKey})) {
        const auto bytes = monitor->get(kFailureKey);
        text.emplace(bytes.begin(), bytes.end());
      }
    } catch (const std::exception&) {
      return;
    }
    lock.lock();
    if (text) {
      failure = text;
      changed.notify_all();
      return;
    }
  }
}

std::vector<int> C10dFabric::State::silent_ranks() {
  int ranks = at.size;
  {
    const std::lock_guard lock(mutex);
    ranks += servers;
  }
  const auto beats = [this, ranks] {
    const std::lock_guard guard(monitor_mutex);  // not during the sleep: our own beats must go on
    std::vector<std::int64_t> counts;
    for (int r = 0; r < ranks; ++r) counts.push_back(monitor->add(beat_key(r), 0));
    return counts;
  };
  const auto before = beats();
  std::this_thread::sleep_for(4 * kBeat);
  const auto after = beats();
  std::vector<int> silent;
  for (int r = 0; r < ranks; ++r) {
    if (r != at.rank && after[static_cast<std::size_t>(r)] == before[static_cast<std::size_t>(r)]) silent.push_back(r);
  }
  return silent;
}

// An operation failed. Finds out who is to blame, tells the others, and throws.
void C10dFabric::State::give_up(const std::string& what, const std::string& why) {
  {
    std::unique_lock lock(mutex);  // a supervisor knows more than we do: give it two beats
    changed.wait_for(lock, 2 * kBeat, [this] { return failure.has_value(); });
    if (failure) throw AnnouncedError(*failure);
  }
  std::string text;
  try {
    std::vector<std::string> silent;
    for (int r : silent_ranks()) silent.push_back(name_of(r));
    text = silent.empty() ? fmt::format("{} gave up on {}: {}", name_of(at.rank), what, why)
                          : fmt::format("{} is lost: no sign of life during {} (seen by {}: {})",
                                        fmt::join(silent, ", "), what, name_of(at.rank), why);
    const std::lock_guard guard(monitor_mutex);
    const auto stands = monitor->compareSet(kFailureKey, {}, to_bytes(text));
    if (!stands.empty()) text.assign(stands.begin(), stands.end());
    const std::lock_guard lock(mutex);
    failure = text;
  } catch (const std::exception&) {
    text = fmt::format(
        "rank {}: {} failed ({}), and the rendezvous store at {}:{} is gone: its process (rank 0 or the "
        "supervisor) has ended",
        at.rank, what, why, at.master_addr, at.master_port);
  }
  throw FabricError(text);
}

// Rounds, scatters the shards to their owners, adds them there in fp32 in rank order, rounds and gathers the sums.
void C10dFabric::State::sum_half(std::span<float> values, Wire wire) {
  if (!half_group) half_group = make_group("half", at.size);
  const std::size_t shard = sum_shard(values.size(), at.size);
  std::vector<std::uint16_t> mine(shard * static_cast<std::size_t>(at.size)), theirs(mine.size()), sum(shard);
  wire_encode(wire, values, std::span(mine).first(values.size()));
  auto out = bytes_view(std::span(theirs)), in = bytes_view(std::span(mine));
  std::vector<std::int64_t> equal;
  half_group->alltoall_base(out, in, equal, equal)->wait();

  std::vector<float> total(shard);
  wire_decode(wire, std::span(theirs).first(shard), total);
  for (std::size_t r = 1; r < static_cast<std::size_t>(at.size); ++r) {
    wire_add(wire, std::span(theirs).subspan(r * shard, shard), total);
  }
  wire_encode(wire, total, sum);
  std::vector<std::vector<torch::Tensor>> parts(1);
  for (std::size_t r = 0; r < static_cast<std::size_t>(at.size); ++r) {
    parts[0].push_back(bytes_view(std::span(mine).subspan(r * shard, shard)));
  }
  std::vector<torch::Tensor> own{bytes_view(std::span(sum))};
  half_group->allgather(parts, own)->wait();
  wire_decode(wire, std::span(mine).first(values.size()), values);
}

namespace {

// How an operation ended; written once by a background thread under the state's mutex.
struct Ending {
  bool finished = false;
  std::string error;
  double at = 0;
};

}  // namespace

// An operation that reports its own end: c10d's collectives through their future, the lanes' jobs directly.
template <typename State>
class Reporting final : public Operation {
 public:
  Reporting(std::shared_ptr<State> state, std::string what)
      : state_(std::move(state)), what_(std::move(what)), ending_(std::make_shared<Ending>()) {}

  // Called on a background thread, once.
  auto reporter() {
    return [state = state_, ending = ending_](std::string error) {
      const std::lock_guard lock(state->mutex);
      ending->finished = true;
      ending->error = std::move(error);
      ending->at = state->clock.now();
      state->changed.notify_all();
    };
  }
  void keep(WorkPtr work) { work_ = std::move(work); }
  void if_abandoned(std::function<void()> abort) { abort_ = std::move(abort); }  // brings about the end

  ~Reporting() override {  // the memory may go away after this: wait for the real end, whatever was announced
    std::unique_lock lock(state_->mutex);
    if (abort_ && !ending_->finished) {
      lock.unlock();
      abort_();
      lock.lock();
    }
    state_->changed.wait(lock, [this] { return ending_->finished; });
  }
  void wait() override {
    std::unique_lock lock(state_->mutex);
    const bool in_time = state_->changed.wait_for(lock, to_millis(state_->at.timeout_seconds),
                                                  [this] { return ending_->finished || state_->failure; });
    if (ending_->finished && ending_->error.empty()) return;
    if (state_->failure) throw AnnouncedError(*state_->failure);
    const std::string why =
        in_time ? first_line(ending_->error) : fmt::format("no answer within {:.0f} s", state_->at.timeout_seconds);
    lock.unlock();
    state_->give_up(what_, why);
  }
  bool done() override {
    const std::lock_guard lock(state_->mutex);
    return ending_->finished || state_->failure.has_value();
  }
  double finished_at() const override { return ending_->at; }
  bool ended() const { return ending_->finished; }  // with the state's mutex held

 private:
  std::shared_ptr<State> state_;
  std::string what_;
  std::shared_ptr<Ending> ending_;
  WorkPtr work_;
  std::function<void()> abort_;
};

// A send or a receive, which c10d lets end only in wait(). It may also fail to start, where the peer has left before;
// that, too, is told in wait().
template <typename State>
class Direct final : public Operation {
 public:
  template <typename Start>
  Direct(std::shared_ptr<State> state, std::string what, const Start& start)
      : state_(std::move(state)), what_(std::move(what)) {
    try {
      work_ = start();
    } catch (const std::exception& e) {
      refused_ = first_line(e.what());
    }
  }
  void wait() override {
    if (finished_at_ > 0) return;
    if (!work_) state_->give_up(what_, refused_);
    try {
      work_->wait();
    } catch (const std::exception& e) {
      state_->give_up(what_, first_line(e.what()));
    }
    finished_at_ = state_->clock.now();
  }
  bool done() override { return finished_at_ > 0; }
  double finished_at() const override { return finished_at_; }

 private:
  std::shared_ptr<State> state_;
  std::string what_;
  WorkPtr work_;         // null where it did not start, and then …
  std::string refused_;  // … why
  double finished_at_ = 0;
};

namespace {

template <typename State>
InFlight collective(const std::shared_ptr<State>& state, std::string what, const std::function<WorkPtr()>& start) {
  auto operation = std::make_unique<Reporting<State>>(state, std::move(what));
  auto report = operation->reporter();
  try {
    WorkPtr work = start();
    work->getFuture()->addCallback(
        [report](c10::ivalue::Future& f) { report(f.hasError() ? f.tryRetrieveErrorMessage() + " " : std::string()); });
    operation->keep(std::move(work));
  } catch (const std::exception& e) {
    report(std::string(e.what()) + " ");
  }
  return InFlight(std::move(operation));
}

// A send or receive between a worker and a server, which c10d lets end only in wait(): the lane's thread does that.
template <typename State>
InFlight on_lane(const std::shared_ptr<State>& state, std::string what, Lane& lane,
                 const std::function<WorkPtr()>& start) {
  auto operation = std::make_unique<Reporting<State>>(state, std::move(what));
  auto report = operation->reporter();
  try {
    WorkPtr work = start();
    operation->if_abandoned([work] { work->abort(); });
    lane.push([work = std::move(work), report] {
      try {
        report(work->wait(kForever) ? "" : "it was given up ");
      } catch (const std::exception& e) {
        report(std::string(e.what()) + " ");
      }
    });
  } catch (const std::exception& e) {  // the peer has left before
    report(std::string(e.what()) + " ");
  }
  return InFlight(std::move(operation));
}

// A send or receive between a worker and the server beside it. start(handover, report) names the operation.
template <typename State, typename Start>
InFlight handed_over(const std::shared_ptr<State>& state, std::string what, const std::shared_ptr<Handover>& handover,
                     const Start& start) {
  auto operation = std::make_unique<Reporting<State>>(state, std::move(what));
  operation->if_abandoned([handover, name = start(*handover, operation->reporter())] { handover->withdraw(name); });
  return InFlight(std::move(operation));
}

}  // namespace

C10dFabric::C10dFabric(const Rendezvous& rendezvous) : state_(std::make_shared<State>(rendezvous)) {
  if (rendezvous.size + rendezvous.servers > 1) state_->join();
  if (rendezvous.serves()) state_->open_wires(rendezvous.servers);
}

C10dFabric::~C10dFabric() {
  if (state_->host.joinable()) {  // nobody waited for the server's end: this worker did not take leave
    state_->abandon();
    state_->host.join();
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  state_->changed.notify_all();
  if (state_->watcher.joinable()) state_->watcher.join();
  // Ranks that wait for us alone (up or down a tree) learn from the store who is to blame, not from us leaving.
  if (state_->server && state_->failure) std::this_thread::sleep_for(3 * kBeat);
  state_->lane.reset();
  state_->receiving.clear();
  state_->sending.clear();
  for (auto& wire : state_->wires) wire.reset();
  // Their threads hold the state while they report an end; whoever lets go of it last must not have to join itself.
  state_->half_group.reset();
  state_->group.reset();
}

int C10dFabric::rank() const { return state_->at.rank; }
int C10dFabric::size() const { return state_->at.size; }
const std::string& C10dFabric::interface() const { return state_->interface; }

InFlight C10dFabric::sum(std::span<float> values, Wire wire) {
  if (size() == 1 || values.empty()) return {};
  const std::string what = fmt::format("sum of {} floats", values.size());
  if (wire == Wire::kFp32) {
    return collective(state_, what, [&] {
      std::vector<torch::Tensor> tensors{
          torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, torch::kFloat)};
      return state_->group->allreduce(tensors);
    });
  }
  if (!state_->lane) state_->lane.emplace();
  auto operation = std::make_unique<Reporting<State>>(state_, what);
  state_->lane->push([state = state_.get(), values, wire, report = operation->reporter()] {
    try {
      state->sum_half(values, wire);
      report("");
    } catch (const std::exception& e) {
      report(std::string(e.what()) + " ");
    }
  });
  return InFlight(std::move(operation));
}

InFlight C10dFabric::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  check(all.size() == mine.size() * static_cast<std::size_t>(size()), "gather of {} bytes into {} over {} ranks",
        mine.size(), all.size(), size());
  if (mine.empty()) return {};
  if (size() == 1) {
    std::copy(mine.begin(), mine.end(), all.begin());
    return {};
  }
  return collective(state_, fmt::format("gather of {} bytes", mine.size()), [&] {
    std::vector<std::vector<torch::Tensor>> parts(1);
    for (std::size_t r = 0; r < static_cast<std::size_t>(size()); ++r) {
      parts[0].push_back(bytes_view(all.subspan(r * mine.size(), mine.size())));
    }
    std::vector<torch::Tensor> own{bytes_view(mine)};
    return state_->group->allgather(parts, own);
  });
}

int C10dFabric::servers() const { return state_->servers; }
bool C10dFabric::beside(int rank) const {
  return state_->servers > 0 && state_->at.servers == 0 && rank == size() + this->rank();
}

void C10dFabric::open_servers(const std::function<void(Fabric&)>& serve) {
  State& s = *state_;
  check(s.servers == 0, "the servers are opened twice");
  if (!s.store) {  // alone: the server beside us is the first to be met
    auto store = c10::static_intrusive_pointer_cast<c10d::TCPStore>(open_store("127.0.0.1", 0, true, 30));
    s.at.master_addr = "127.0.0.1";
    s.at.master_port = store->getPort();
    s.server = store;
    s.join();
  }
  if (s.at.servers > 0) return s.open_wires(s.at.servers);
  Rendezvous beside = s.at;
  beside.rank = s.at.size + s.at.rank;
  beside.servers = s.at.size;
  beside.hosts_store = false;
  for (auto* lanes : {&s.to_neighbour, &s.from_neighbour}) {
    for (auto& lane : *lanes) lane = std::make_shared<Handover>();
  }
  s.host = std::thread([state = &s, beside, serve] {
    try {
      C10dFabric endpoint(beside);
      {
        const std::lock_guard lock(state->mutex);
        state->hosted = endpoint.state_;
        if (state->abandoned) return;
      }
      endpoint.state_->to_neighbour = state->from_neighbour;
      endpoint.state_->from_neighbour = state->to_neighbour;
      serve(endpoint);
    } catch (const std::exception&) {  // announced; or it could not join, and our own wait for it says so
    }
  });
  s.open_wires(s.at.size);
}

void C10dFabric::close_servers() {
  if (state_->host.joinable()) state_->host.join();
}

// Ends the server beside us, whatever it waits for.
void C10dFabric::State::abandon() {
  const std::lock_guard lock(mutex);
  abandoned = true;
  if (!hosted) return;  // it will see that when it comes
  const std::lock_guard other(hosted->mutex);
  if (!hosted->failure) hosted->failure = "the worker beside this server has ended";
  hosted->changed.notify_all();
}

void C10dFabric::wait_any(std::span<Operation* const> operations) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] {
    return state_->failure || std::any_of(operations.begin(), operations.end(),
                                          [](Operation* one) { return static_cast<Reporting<State>*>(one)->ended(); });
  });
}

void C10dFabric::announce_failure(const std::string& text) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->failure) state_->failure = text;
    state_->changed.notify_all();
  }
  if (!state_->monitor) return;
  try {
    const std::lock_guard guard(state_->monitor_mutex);
    state_->monitor->compareSet(kFailureKey, {}, to_bytes(text));
  } catch (const std::exception&) {  // the store is gone, and with it the job
  }
}

InFlight C10dFabric::send(int to, Tag tag, std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const std::string what = fmt::format("send of {} bytes to {}", bytes.size(), state_->name_of(to));
  if (state_->is_neighbour(to)) {
    return handed_over(state_, what, state_->to_neighbour[tag],
                       [&](Handover& h, auto report) { return h.send(bytes, report); });
  }
  std::vector<torch::Tensor> tensors{bytes_view(bytes)};
  if (state_->over_wires(to)) {
    return on_lane(state_, what, state_->sending[tag], [&] { return state_->wires[tag]->send(tensors, to, 0); });
  }
  return InFlight(std::make_unique<Direct<State>>(
      state_, what, [&] { return state_->group->send(tensors, to, static_cast<int>(tag)); }));
}

InFlight C10dFabric::recv(int from, Tag tag, std::span<std::byte> bytes) {
  if (bytes.empty()) return {};
  const std::string what = fmt::format("receive of {} bytes from {}", bytes.size(), state_->name_of(from));
  if (state_->is_neighbour(from)) {
    return handed_over(state_, what, state_->from_neighbour[tag],
                       [&](Handover& h, auto report) { return h.recv(bytes, report); });
  }
  std::vector<torch::Tensor> tensors{bytes_view(bytes)};
  if (state_->over_wires(from)) {
    return on_lane(state_, what, state_->receiving[{from, tag}],
                   [&] { return state_->wires[tag]->recv(tensors, from, 0); });
  }
  return InFlight(std::make_unique<Direct<State>>(
      state_, what, [&] { return state_->group->recv(tensors, from, static_cast<int>(tag)); }));
}

struct StoreHost::State {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreHost::StoreHost(int port) : state_(std::make_unique<State>()) {
  state_->store = c10::static_intrusive_pointer_cast<c10d::TCPStore>(open_store("0.0.0.0", port, true, 30));
}
StoreHost::~StoreHost() = default;
int StoreHost::port() const { return state_->store->getPort(); }
void StoreHost::announce_failure(const std::string& text) {
  state_->store->compareSet(kFailureKey, {}, to_bytes(text));
}

}  // namespace slipstream
