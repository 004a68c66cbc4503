// SPDX-License-Identifier: Apache-2.0
//
// slipstream._core: the C++ library as Python sees it, without conveniences; those are in python/slipstream/*.py.
//
// The GIL is released in everything that may wait. What C++ calls back (the learning rate, an optimizer's own step) takes
// it again, from whichever thread that is. After a wait, pending signals are looked at first, so that Ctrl-C is a
// KeyboardInterrupt even where the wait ended because a peer was interrupted, too.
#include <pybind11/stl.h>
#include <slipstream/base/error.h>
#include <slipstream/base/version.h>
#include <slipstream/cli/cli.h>
#include <slipstream/runtime/session.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <optional>

#include "cli/verbs.h"
#include "fabric/c10d_sums.h"
#include "runtime/launch.h"
#include "task/sampler.h"

namespace py = pybind11;

namespace slipstream {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

void throw_pending_signal() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Runs `work` without the GIL.
template <typename Work>
auto waiting(Work work) {
  throw_pending_signal();
  try {
    const py::gil_scoped_release free;
    return work();
  } catch (const py::error_already_set&) {  // of a callback
    throw;
  } catch (const std::exception&) {
    throw_pending_signal();
    throw;
  }
}

// A Python callable that C++ may copy and drop without the GIL.
std::shared_ptr<py::function> shared(py::function f) {
  return {new py::function(std::move(f)), [](py::function* held) {
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

void set_all(OptionSet& options, const Pairs& pairs) {
  for (const auto& [key, value] : pairs) options.set(key, value);
}

class World {
 public:
  // `process_group`: the name of the c10d group that makes dense sums with sums=c10d; empty: one of our own.
  World(const Pairs& pairs, const std::string& process_group) {
    LaunchOptions options;
    OptionSet described("join()");
    options.describe(described);
    set_all(described, pairs);
    if (options.workers > 0 || !options.lab.empty()) {
      fail<ConfigError>("join() makes this process a worker; to start workers use torchrun or `python -m slipstream`");
    }
    Placement placement = place(options, process_environment());
    if (placement.supervisor) placement.at = {};
    placement.at.process_group = process_group;
    placement.at.interrupted = [] {
      const py::gil_scoped_acquire gil;
      return PyErr_CheckSignals() != 0;
    };
    try {
      const py::gil_scoped_release free;
      fabric_ = join_fabric(placement.at);
    } catch (const Interrupted&) {
      if (PyErr_Occurred() != nullptr) throw py::error_already_set();
      throw;
    }
  }
  Fabric& fabric() { return *fabric_; }
  int rank() const { return fabric_->rank(); }
  int size() const { return fabric_->size(); }
  void announce(const std::string& text) { fabric_->announce(text); }

 private:
  std::unique_ptr<MeshFabric> fabric_;
};

py::dict as_dict(const StepRecord& r) {
  py::dict d;
  d["step"] = r.t;
  d["loss"] = r.loss;
  d["lr"] = r.lr;
  d["bytes_sent"] = r.bytes_sent;
  d["bytes_received"] = r.bytes_received;
  d["seconds"] = r.seconds;
  d["compute"] = r.compute_seconds;
  d["update"] = r.update_seconds;
  d["encode"] = r.encode_seconds;
  d["exposed"] = r.exposed_seconds;
  d["hidden"] = std::max(0.0, r.wire_seconds - r.exposed_seconds);
  d["news"] = r.news;
  return d;
}

class PySession {
 public:
  PySession(std::shared_ptr<World> world, NamedTensors parameters, NamedTensors buffers, const std::string& strategy,
            const std::vector<std::string>& set, const Pairs& optimizer, std::vector<ParameterGroup> groups,
            py::function lr, const std::optional<py::function>& own_step, bool stage)
      : world_(std::move(world)) {
    SessionOptions options{.strategy = strategy, .set = set, .stage = stage};
    OptionSet described("optimizer");
    options.optimizer.describe(described);
    set_all(described, optimizer);
    options.optimizer.groups = std::move(groups);
    options.lr = [rate = shared(std::move(lr))](std::int64_t) {
      const py::gil_scoped_acquire gil;
      return (*rate)().cast<double>();
    };
    if (own_step) {
      options.own_step = [step = shared(*own_step)] {
        const py::gil_scoped_acquire gil;
        (*step)();
      };
    }
    const ModuleTensors module{std::move(parameters), std::move(buffers)};
    session_ = waiting([&] { return std::make_unique<Session>(world_->fabric(), module, options); });
  }
  ~PySession() {
    hold_.reset();
    const py::gil_scoped_release free;
    average_.reset();
    session_.reset();
  }

  py::dict step(double loss) {
    return as_dict(waiting([&] { return session_->step(loss); }));
  }
  void finish() {
    waiting([&] { session_->finish(); });
  }
  void join() {
    waiting([&] { session_->join(); });
  }
  void average(bool on) {
    waiting([&] {
      average_.reset();
      if (on) average_.emplace(session_->average());
    });
  }
  bool agreement() {
    return waiting([&] { return session_->agreement(); });
  }
  void gradient_ready(std::size_t i) {
    waiting([&] { session_->gradient_ready(i); });
  }
  void zero_grad() { session_->zero_grad(); }
  void set_lr_factor(std::size_t group, double factor) { session_->set_lr_factor(group, factor); }
  void hold(bool on) {
    hold_.reset();
    if (on) hold_.emplace(session_->hold());
  }

  NamedTensors state() {
    return waiting([&] { return session_->state(); });
  }
  void set_state(const NamedTensors& state) {
    waiting([&] { session_->set_state(state); });
  }

 private:
  std::shared_ptr<World> world_;  // the session uses its fabric
  std::unique_ptr<Session> session_;
  std::optional<Session::Hold> hold_;
  std::optional<Session::Average> average_;
};

int cli(std::vector<std::string> words, const std::vector<std::string>& program) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const py::gil_scoped_release free;
  return run_cli(static_cast<int>(argv.size()), argv.data(), Registry::builtin(), program);
}

std::vector<std::string> strategy_names() {
  const Registry registry = Registry::builtin();
  std::vector<std::string> names;
  for (const StrategyInfo& info : registry.all()) names.push_back(info.name);
  return names;
}

std::string explain_strategy(const std::string& name) {
  const Registry registry = Registry::builtin();
  return explain(registry.find(name));
}

}  // namespace
}  // namespace slipstream

PYBIND11_MODULE(_core, m) {
  using namespace slipstream;
  m.attr("version") = version();

  // The last registered is asked first: from the general to the special.
  const auto& error = py::register_exception<Error>(m, "Error", PyExc_RuntimeError);
  const auto& config = py::register_exception<ConfigError>(m, "ConfigError", error.ptr());
  py::register_exception<DataError>(m, "DataError", error.ptr());
  py::register_exception<FabricError>(m, "FabricError", error.ptr());
  py::register_exception<DivergedError>(m, "DivergedError", config.ptr());
  py::register_exception_translator([](std::exception_ptr e) {
    try {
      std::rethrow_exception(e);
    } catch (const Interrupted& interrupted) {
      PyErr_SetString(PyExc_KeyboardInterrupt, interrupted.what());
    }
  });

  py::class_<ParameterGroup>(m, "ParameterGroup")
      .def(py::init([](std::vector<std::string> names, double lr_factor, double weight_decay) {
        return ParameterGroup{std::move(names), lr_factor, weight_decay};
      }));

  py::class_<Sampler>(m, "Sampler")
      .def(py::init<std::int64_t, std::int64_t, int, int, std::uint64_t>())
      .def("steps_per_epoch", &Sampler::steps_per_epoch)
      .def("batch", [](Sampler& sampler, std::int64_t epoch, std::int64_t taken) {
        const auto samples = sampler.batch({epoch, taken});
        return std::vector<std::int64_t>(samples.begin(), samples.end());
      });

  py::class_<World, std::shared_ptr<World>>(m, "World")
      .def(py::init<const Pairs&, const std::string&>())
      .def_property_readonly("rank", &World::rank)
      .def_property_readonly("size", &World::size)
      .def("announce", &World::announce, py::call_guard<py::gil_scoped_release>());

  py::class_<PySession>(m, "Session")
      .def(py::init<std::shared_ptr<World>, NamedTensors, NamedTensors, const std::string&,
                    const std::vector<std::string>&, const Pairs&, std::vector<ParameterGroup>, py::function,
                    const std::optional<py::function>&, bool>())
      .def("step", &PySession::step)
      .def("finish", &PySession::finish)
      .def("join", &PySession::join)
      .def("average", &PySession::average)
      .def("agreement", &PySession::agreement)
      .def("gradient_ready", &PySession::gradient_ready)
      .def("zero_grad", &PySession::zero_grad)
      .def("hold", &PySession::hold)
      .def("state", &PySession::state)
      .def("set_state", &PySession::set_state)
      .def("set_lr_factor", &PySession::set_lr_factor);

  m.def("run_cli", &cli);
  m.def("strategy_names", &strategy_names);
  m.def("explain", &explain_strategy);
}
