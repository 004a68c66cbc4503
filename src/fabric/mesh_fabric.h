// SPDX-License-Identifier: Apache-2.0
//
// MeshFabric: the real wire. Everything runs on the mesh (wire/mesh.h): gathers and short sums in one exchange, long
// sums as reduce-scatter and all-gather by direct exchange, in pieces and in rank order (mesh_sum.h), messages eagerly.
// Dense fp32 sums may go to another engine (DenseSums): c10d's, see c10d_sums.h. No torch here.
#pragma once

#include <slipstream/fabric/fabric.h>
#include <slipstream/fabric/rendezvous.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "wire/hub.h"
#include "wire/mesh.h"

namespace slipstream {

// An engine for dense sums over all workers.
class DenseSums {
 public:
  virtual ~DenseSums() = default;
  virtual InFlight sum(std::span<float> values) = 0;  // in place, as Fabric::sum
};

class MeshFabric final : public Fabric {
 public:
  // Blocks until all have joined. Throws FabricError naming the ranks that did not, ConfigError for a port in use. If
  // this process hosts the rendezvous, `publish` gets its port before anybody is waited for.
  explicit MeshFabric(const Rendezvous& rendezvous, const std::function<void(int port)>& publish = {});
  ~MeshFabric() override;

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->workers(); }
  Clock& clock() override { return clock_; }
  using Fabric::sum;
  InFlight sum(std::span<float> values, Wire wire) override;
  InFlight gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  using Fabric::recv;
  using Fabric::send;
  InFlight send(int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more) override;
  InFlight recv(int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) override;
  void announce(const std::string& text) override;
  Servers servers() const override;
  void listen(Tag tag, Listener* listener) override;
  void regroup() override;
  void holds_training() override;
  bool somebody_waits_to_join() const override { return mesh_->somebody_waits_to_join(); }

  // From now on this engine does all dense fp32 sums except short ones.
  void use(std::unique_ptr<DenseSums> sums) { dense_ = std::move(sums); }
  const Rendezvous& at() const { return at_; }
  bool serves() const { return rank() >= size(); }
  std::shared_ptr<MeshCore> core() { return mesh_->shared(); }
  const Mesh& mesh() const { return *mesh_; }
  // The address and interface that data goes through, for people: "10.88.0.1 on e0".
  const std::string& interface() const { return interface_; }

 private:
  std::uint64_t* numbers(bool sends, int peer, Tag tag) { return &numbers_[{sends, peer, tag}]; }

  Rendezvous at_;  // as this process was started
  SteadyClock clock_;
  bool holds_ = false;
  std::string address_, interface_;
  std::unique_ptr<Hub> hub_;  // if this process is the rendezvous: until all have joined; in an elastic job, always
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<DenseSums> dense_;
  std::map<std::tuple<bool, int, Tag>, std::uint64_t> numbers_;  // of the next message, by direction, peer and tag
};

}  // namespace slipstream
