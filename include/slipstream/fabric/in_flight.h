// SPDX-License-Identifier: Apache-2.0
//
// InFlight: one running operation of a Fabric. Move-only. It ends in success, in an error or in a timeout, never in
// silence: wait() throws FabricError naming the peer and the operation. The destructor waits too (and swallows the
// error), so the memory an operation uses must be declared before the InFlight that uses it.
//
// Operation is what a Fabric implements behind it; strategies see only InFlight.
#pragma once

#include <memory>
#include <utility>

namespace slipstream {

class Operation {
 public:
  virtual ~Operation() = default;
  virtual void wait() = 0;                 // blocks until the end; throws FabricError; may be called again
  virtual bool done() = 0;                 // true when wait() would not block; never blocks itself
  virtual double finished_at() const = 0;  // on the Fabric's clock; valid after wait()
};

class InFlight {
 public:
  InFlight() = default;
  explicit InFlight(std::unique_ptr<Operation> operation) : operation_(std::move(operation)) {}
  InFlight(InFlight&&) noexcept = default;
  InFlight& operator=(InFlight&& other) noexcept {
    settle();
    operation_ = std::move(other.operation_);
    return *this;
  }
  ~InFlight() { settle(); }

  // Blocks until the operation has ended, then forgets it. Does nothing where there is none.
  void wait() {
    if (!operation_) return;
    auto ending = std::move(operation_);
    ending->wait();
  }

  bool done() const { return !operation_ || operation_->done(); }
  bool active() const { return operation_ != nullptr; }
  std::unique_ptr<Operation> release() { return std::move(operation_); }  // for a Fabric that wraps another

 private:
  void settle() noexcept {
    try {
      wait();
    } catch (...) {  // callers that need the error call wait() themselves
    }
  }

  std::unique_ptr<Operation> operation_;
};

}  // namespace slipstream
