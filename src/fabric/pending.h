// SPDX-License-Identifier: Apache-2.0
//
// Pending: an operation made of transfers of the mesh. It ends when all of them have, or with the job. If nothing of it
// moves for the timeout, wait() gives up, for the whole job. It is woken once, not once per message.
//
// The destructor of the final class calls settle(): afterwards nobody touches the operation's memory. It waits no
// longer than the timeout without progress.
#pragma once

#include <slipstream/fabric/in_flight.h>

#include <memory>
#include <string>
#include <vector>

#include "wire/mesh.h"

namespace slipstream {

class Pending : public Operation, public TransferOwner {
 public:
  void wait() final;
  bool done() final;
  double finished_at() const final { return finished_at_; }

 protected:
  Pending(std::shared_ptr<MeshCore> mesh, std::string what, std::size_t transfers);

  // All transfers that may be needed; set up by the final class.
  Transfer& transfer(std::size_t i) { return transfers_[i]; }
  std::size_t index_of(const Transfer& t) const { return static_cast<std::size_t>(&t - transfers_.get()); }
  void set(std::size_t i, int peer, Tag tag, std::uint64_t number, std::span<std::byte> bytes,
           std::span<std::byte> more = {});

  void start(std::span<const MeshCommand> commands);  // from any thread
  void settle() noexcept;

  // Called on the I/O thread after each transfer that arrived. May start more; true if the operation is complete once
  // everything that was started has ended.
  virtual bool advance(Transfer&) { return true; }

  MeshCore& mesh() { return *mesh_; }

 private:
  void ended(Transfer& transfer, bool arrived) final;
  std::string what() const final { return what_; }
  std::uint64_t progress() const;
  std::vector<int> awaited() const;  // peers that still owe us something; call it with the mutex held
  std::string names(const std::vector<int>& peers) const;

  const std::shared_ptr<MeshCore> mesh_;
  const std::string what_;
  const std::size_t count_;
  std::unique_ptr<Transfer[]> transfers_;
  // Guarded by the mesh's mutex.
  std::size_t running_ = 0;
  bool complete_ = false, failed_ = false, finished_ = false, waited_ = false, given_up_ = false;
  double finished_at_ = 0;
};

}  // namespace slipstream
