// SPDX-License-Identifier: Apache-2.0
//
// Pace: how ranks with different amounts of data come to the same number of steps. A rank that has no more data asks
// the others whether they go on; while one of them does, it takes part in their steps without data of its own.
//
//   pace.begins(t);                                     // a rank with data, in every step
//   while (pace.someone_goes_on(engine.t())) {          // a rank without
//     engine.step_without_data();
//   }
//
// The protocol, where p has ended at step e and q is any other rank:
//
//   p -> q  ended at e         once
//   q -> p  begun up to b      once, the answer, by q's I/O thread: q may be in a step that waits for p. Or: ended
//   q -> p  begun t            for every step t > b, t >= e
//   q -> p  ended              once, unless the answer said so
//
// So p receives exactly what is sent to it, and knows of every step whether q takes it. Nothing is exchanged before a
// rank ends, so ranks with equal amounts exchange nothing during steps. When nobody goes on and everybody was answered,
// all ranks are at the same step and a new round begins: they may train on. Letters carry their round; those left over
// from an abandoned session are ignored.
//
// Waits end as all waits of a Fabric do: a rank that is lost, leaves or hangs is named. The constructor is a
// collective. Training thread, except for the Listener's calls, which come from the fabric's I/O thread. Needs a fabric
// that can listen.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "wire/listener.h"

namespace slipstream {

class Pace final : public Listener {
 public:
  explicit Pace(Fabric& net);
  ~Pace() override;
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  // This rank takes step t with data of its own. May be called repeatedly in the same step.
  void begins(std::int64_t t);
  bool begun(std::int64_t t) const { return latest_ == t; }

  // This rank has no data for step t. True: another rank takes it, so all must; ask again afterwards. False: none does.
  bool someone_goes_on(std::int64_t t);

 private:
  struct Letter {  // the first 24 of 48 bytes, little-endian
    std::int64_t round = 0;
    std::int64_t step = 0;   // the step it ended at, or the last one it has begun
    std::int64_t ended = 0;  // 1: no step of this round follows
    LetterHead pack() const;
    static Letter unpack(const LetterHead& head);
  };
  struct Heard {  // from one peer, in this round
    bool answered = false, ended = false;
    std::int64_t begun = -1;
  };
  struct Asked {  // by one peer: it has ended
    std::int64_t round = -1, at = 0;
  };
  struct Sent {
    LetterHead head;
    InFlight leaving;
  };

  void begins(int from, Tag tag, const LetterHead& head, std::uint64_t body_bytes) override;
  void arrived(int from, Tag tag, const LetterHead& head, std::span<const std::byte> body, Answers& answers) override;
  void failed(const std::string& text) override;

  void send(int to, Tag tag, const Letter& letter);
  void end(std::int64_t t);
  void hear(int peer);
  void begin_round();

  Fabric& net_;
  std::int64_t latest_ = -1;  // the training thread's copy of begun_
  std::vector<Heard> heard_;  // by rank
  std::deque<Sent> sent_;     // a deque, so that letters do not move while they are sent

  std::mutex mutex_;  // guards what follows; the I/O thread writes the last two, the training thread the others
  std::condition_variable changed_;
  std::int64_t round_ = 0;
  std::int64_t begun_ = -1;   // the last step this rank began with data
  bool ended_ = false;        // in this round
  std::vector<Asked> asked_;  // by rank
  std::optional<std::string> failure_;
};

}  // namespace slipstream
