// SPDX-License-Identifier: Apache-2.0
//
// ForwardingFabric: a Fabric that hands every call to another one, which must outlive it. A base for those that change
// or watch a few of the calls.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <string>

namespace slipstream {

class ForwardingFabric : public Fabric {
 public:
  explicit ForwardingFabric(Fabric& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Clock& clock() override { return inner_.clock(); }
  using Fabric::sum;
  InFlight sum(std::span<float> values, Wire wire) override { return inner_.sum(values, wire); }
  InFlight gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return inner_.gather(mine, all);
  }
  using Fabric::recv;
  using Fabric::send;
  InFlight send(int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more) override {
    return inner_.send(to, tag, bytes, more);
  }
  InFlight recv(int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) override {
    return inner_.recv(from, tag, bytes, more);
  }
  void announce(const std::string& text) override { inner_.announce(text); }
  void regroup() override { inner_.regroup(); }
  void holds_training() override { inner_.holds_training(); }
  bool somebody_waits_to_join() const override { return inner_.somebody_waits_to_join(); }
  Servers servers() const override { return inner_.servers(); }
  bool beside(int other) const override { return inner_.beside(other); }
  void listen(Tag tag, Listener* listener) override { inner_.listen(tag, listener); }
  bool can_listen() const override { return inner_.can_listen(); }

 protected:
  Fabric& inner() const { return inner_; }

 private:
  Fabric& inner_;
};

}  // namespace slipstream
