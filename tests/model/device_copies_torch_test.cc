// SPDX-License-Identifier: Apache-2.0
//
// Parameters on another device, with a device made for these tests (of the type IPU, which
// torch knows by name only): its memory is the host's, and
// copies that need not be waited for are made late, one after the other, by a thread of its own.
#include <ATen/ops/as_strided_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <slipstream/runtime/session.h>
#include <torch/library.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "fabric/loopback.h"
#include "model/device_copies.h"
#include "model/torch_model.h"
#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;
using test::run_ranks;

constexpr auto kType = c10::DeviceType::IPU;
const c10::Device kDevice(kType, 0);

class LateDevice {
 public:
  static LateDevice& get() {
    static LateDevice device;
    return device;
  }
  ~LateDevice() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = open_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void work_later(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    ++given_;
    changed_.notify_all();
  }
  std::uint64_t given() {
    const std::lock_guard lock(mutex_);
    return given_;
  }
  bool has_done(std::uint64_t count) {
    const std::lock_guard lock(mutex_);
    return done_ >= count;
  }
  void wait_for(std::uint64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= count; });
  }
  // What must be done at once waits for what came before, but not for a closed gate.
  void catch_up() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= given_ || !open_; });
  }
  void set_open(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  bool has_events = true;

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || (open_ && !work_.empty()); });
      if (work_.empty()) return;
      const auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // late: whoever does not wait sees old values
      work();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::uint64_t given_ = 0, done_ = 0;
  bool open_ = true, ends_ = false;
  std::thread thread_{[this] { run(); }};
};

// While it lives, the device makes no copies that are not waited for.
class ClosedGate {
 public:
  ClosedGate() { LateDevice::get().set_open(false); }
  ~ClosedGate() { LateDevice::get().set_open(true); }
  ClosedGate(const ClosedGate&) = delete;
  ClosedGate& operator=(const ClosedGate&) = delete;
};

// An event is how much work there was when it was recorded.
struct LateGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    TORCH_CHECK(LateDevice::get().has_events, "no events here");
    if (*event == nullptr) *event = new std::uint64_t;
    *static_cast<std::uint64_t*>(*event) = LateDevice::get().given();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override {
    return LateDevice::get().has_done(*static_cast<std::uint64_t*>(event));
  }
  void synchronizeEvent(void* event) const {  // NOLINT: overrides since torch 2.4
    LateDevice::get().wait_for(*static_cast<std::uint64_t*>(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<std::uint64_t*>(event);
  }
};
C10_REGISTER_GUARD_IMPL(IPU, LateGuard);

at::Tensor make_empty(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::optional<at::ScalarType> type) {
  const auto dtype = c10::scalarTypeToTypeMeta(type.value_or(at::kFloat));
  std::int64_t count = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) count += (sizes[i] - 1) * strides[i];
  const auto bytes = std::max<std::int64_t>(0, count) * static_cast<std::int64_t>(dtype.itemsize());
  void* memory = std::malloc(static_cast<std::size_t>(bytes));
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       c10::DataPtr(memory, memory, &std::free, kDevice),
                                                       /*allocator=*/nullptr, /*resizable=*/false);
  auto tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::IPU), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor empty(c10::IntArrayRef sizes, c10::optional<at::ScalarType> type, c10::optional<at::Layout>,
                 c10::optional<at::Device>, c10::optional<bool>, c10::optional<at::MemoryFormat>) {
  return make_empty(sizes, c10::contiguous_strides(sizes), type);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::optional<at::ScalarType> type,
                         c10::optional<at::Layout>, c10::optional<at::Device>, c10::optional<bool>) {
  return make_empty(sizes, strides, type);
}

// The same memory as a tensor of the CPU.
at::Tensor on_host(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const auto copy = [from, to] {
    const torch::NoGradGuard no_grad;
    on_host(to).copy_(on_host(from));
  };
  LateDevice::get().catch_up();
  non_blocking ? LateDevice::get().work_later(copy) : copy();
  return to;
}

at::Tensor& add(at::Tensor& self, const at::Tensor& other, const at::Scalar& times) {  // backward accumulates
  LateDevice::get().catch_up();
  on_host(self).add_(on_host(other), times);
  return self;
}

TORCH_LIBRARY_IMPL(aten, IPU, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("add_.Tensor", &add);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
}

// A network whose parameters are somewhere and which computes on the CPU: the device offers copies and little more.
struct Net : torch::nn::Module {
  explicit Net(c10::Device where) {
    torch::manual_seed(3);
    for (const auto& [name, sizes] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
             {"w1", {16, 6}}, {"b1", {16}}, {"w2", {4, 16}}, {"b2", {4}}}) {
      p.push_back(register_parameter(name, torch::randn(sizes).mul_(0.3).to(where)));
    }
  }
  torch::Tensor loss(std::int64_t t, int rank = 0) {
    auto random = torch::make_generator<torch::CPUGeneratorImpl>(static_cast<std::uint64_t>(10 * t + rank));
    const auto x = torch::randn({8, 6}, random), y = torch::randint(0, 4, {8}, random, torch::kLong);
    const auto hidden = torch::linear(x, p[0].cpu(), p[1].cpu()).tanh();
    return torch::cross_entropy_loss(torch::linear(hidden, p[2].cpu(), p[3].cpu()), y);
  }
  torch::Tensor weights() const {
    std::vector<torch::Tensor> parts;
    for (const torch::Tensor& each : p) parts.push_back(each.detach().cpu().flatten());
    return torch::cat(parts);
  }
  std::vector<torch::Tensor> p;
};

void train(Fabric& world, Net& net, const SessionOptions& options, bool accumulate = false) {
  Session session(world, net, options);
  for (std::int64_t t = 0; t < 12; ++t) {
    if (accumulate) {
      const auto hold = session.hold();
      net.loss(100 + t, world.rank()).backward();
    }
    auto loss = net.loss(t, world.rank());
    loss.backward();
    session.step(loss.item<double>());
  }
  session.finish();
}

TEST(DeviceCopies, ACopyFromADeviceHasArrivedOnceItsEventPassed) {
  auto from = torch::arange(4, torch::kFloat).to(kDevice), to = torch::zeros({4});
  Arrival arrival;
  EXPECT_TRUE(arrival.passed());
  {
    const ClosedGate gate;
    arrival = copy_beside(to, from);
    EXPECT_FALSE(arrival.passed());
    EXPECT_EQ(to.sum().item<float>(), 0);
  }
  arrival.wait();
  EXPECT_TRUE(arrival.passed());
  EXPECT_TRUE(torch::equal(to, torch::arange(4, torch::kFloat)));
}

TEST(DeviceCopies, WithoutEventsACopyIsMadeAtOnce) {
  auto from = torch::arange(4, torch::kFloat).to(kDevice), to = torch::zeros({4});
  LateDevice::get().has_events = false;
  const Arrival arrival = copy_beside(to, from);
  LateDevice::get().has_events = true;
  EXPECT_TRUE(arrival.passed());
  EXPECT_TRUE(torch::equal(to, torch::arange(4, torch::kFloat)));
  LateDevice::get().wait_for(LateDevice::get().given());
}

TEST(DeviceCopies, MemoryIsThereAndZeroWhereTorchCannotPinAny) {
  const FlatModel::Buffer memory = pinned_memory(100);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(memory[i], 0);
}

TEST(TorchModelOnADevice, EachGradientIsReportedOnceAndNotBeforeItHasArrived) {
  Net here(torch::kCPU), there(kDevice);
  TorchModel expected(here), model(there);
  ASSERT_TRUE(model.stages());
  std::vector<std::size_t> reported;
  model.on_gradient([&](std::size_t slot) {
    reported.push_back(slot);
    const Slot& place = model.flat().slots()[slot];
    for (std::size_t i = place.offset; i < place.offset + place.count; ++i) {
      EXPECT_EQ(model.flat().grads()[i], expected.flat().grads()[i]);
    }
  });
  here.loss(1).backward();
  {
    const ClosedGate gate;
    there.loss(1).backward();
    EXPECT_TRUE(reported.empty());
    for (const float g : model.flat().grads()) EXPECT_EQ(g, 0);
  }
  model.settle_gradients();
  std::sort(reported.begin(), reported.end());
  EXPECT_EQ(reported, (std::vector<std::size_t>{0, 1, 2, 3}));
}

TEST(TorchModelOnADevice, TheDeviceHasTheWeightsWhenPublishReturns) {
  Net net(kDevice);
  TorchModel model(net);
  for (float& w : model.flat().weights()) w = 7;
  model.publish();
  for (float& w : model.flat().weights()) w = 0;  // a copy that is made only now would bring zeros
  EXPECT_TRUE(torch::equal(net.weights(), torch::full({180}, 7.0F)));
}

TEST(TorchModelOnADevice, AGradientThatChangesAfterItWasCopiedIsNoticed) {
  Net net(kDevice);
  TorchModel model(net);
  model.on_gradient([&](std::size_t slot) { model.seal(slot, slot + 1); });
  {
    const ClosedGate gate;
    net.loss(1).backward();
    torch::NoGradGuard no_grad;
    net.p[2].mutable_grad().copy_(torch::zeros({4, 16}));  // before it is reported
  }
  expect_error<ConfigError>([&] { model.settle_gradients(); }, {"'w2'", "changed"});
}

TEST(TorchModelOnADevice, MayEndWhileCopiesAreUnderWay) {
  Net net(kDevice);
  std::optional<TorchModel> model(std::in_place, net);
  net.loss(1).backward();
  model.reset();
  EXPECT_TRUE(LateDevice::get().has_done(LateDevice::get().given())) << "they would write to freed memory";
  EXPECT_FALSE(net.p[0].grad().defined());
}

class SessionOnADevice : public testing::TestWithParam<const char*> {};

TEST_P(SessionOnADevice, TrainsToTheBitWhatTheCpuDoes) {
  const SessionOptions options{.strategy = GetParam(), .optimizer = {.kind = "adamw", .lr = 0.01}};
  for (const bool accumulate : {false, true}) {
    Net here(torch::kCPU), there(kDevice);
    MeshFabric alone(Rendezvous{});
    train(alone, here, options, accumulate);
    train(alone, there, options, accumulate);
    EXPECT_TRUE(torch::equal(here.weights(), there.weights())) << "accumulates: " << accumulate;
    EXPECT_FALSE(torch::equal(here.weights(), Net(torch::kCPU).weights()));
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, SessionOnADevice, testing::Values("ssgd", "lags", "gs", "dasgd"));

// Whether a gradient has arrived differs from rank to rank; whether it has left must not.
TEST(SessionOnADevice, RanksThatTalkBetweenBackwardAndStepAgreeThatGradientsHaveLeft) {
  std::array<Net, 2> nets{Net(kDevice), Net(torch::kCPU)};
  run_ranks(2, [&](Fabric& world) {
    Net& net = nets.at(static_cast<std::size_t>(world.rank()));
    Session session(world, net, {.strategy = "ssgd"});
    {
      const ClosedGate gate;
      net.loss(1, world.rank()).backward();
    }
    session.agreement();
    session.join();
    session.step(0);
    session.finish();
  });
  EXPECT_TRUE(torch::equal(nets[0].weights(), nets[1].weights()));
}

TEST(SessionOnADevice, TwoWorkersTrainToTheBitWhatTheyDoOnTheCpu) {
  std::vector<torch::Tensor> ends;
  for (const c10::Device where : {c10::Device(torch::kCPU), kDevice}) {
    std::array<Net, 2> nets{Net(where), Net(where)};
    run_ranks(
        2, [&](Fabric& world) { train(world, nets.at(static_cast<std::size_t>(world.rank())), {.strategy = "ssgd"}); });
    for (const Net& net : nets) ends.push_back(net.weights());
  }
  for (const torch::Tensor& end : ends) EXPECT_TRUE(torch::equal(end, ends[0]));
}

}  // namespace
}  // namespace slipstream
