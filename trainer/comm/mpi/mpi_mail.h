// Mail between the processes of a job, above MPI's point-to-point calls.
// A letter is short and never waits for its receiver; each arrives in the
// mailbox of its receiver under a key, in any order across keys and in the
// order of posting within one. What is long goes beside the letter that
// announces it, from memory to memory, once the receiver says where to.
// Waits poll: they yield, then sleep ever longer, up to a millisecond.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_MPI_MPI_MAIL_H_
#define SHARDSHIFT_TRAINER_COMM_MPI_MPI_MAIL_H_

#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/comm/mpi/mpi_calls.h"

namespace shardshift::trainer {

enum class LetterKind : int32_t {
  kMessage,     // of Send
  kCall,        // a rank is in a collective call
  kWithdrawal,  // and has left it
  kFailure,     // of a rank
  kEnd,         // of a rank
};

struct LetterKey {
  LetterKind kind = LetterKind::kMessage;
  uint64_t context = 0;  // the group it belongs to
  int source = 0;        // a world rank
  int64_t tag = 0;
  auto operator<=>(const LetterKey&) const = default;
};

// What goes on in front of a letter's body.
struct LetterHead {
  LetterKind kind = LetterKind::kMessage;
  int32_t bulk_tag = 0;  // of what goes beside the letter
  uint64_t context = 0;
  int64_t tag = 0;
  int64_t bulk_bytes = 0;
};

// A letter as it arrived. The body is aligned for any scalar.
struct Letter {
  LetterHead head;
  std::vector<std::byte> bytes;  // head and body

  std::span<const std::byte> body() const {
    return std::span(bytes).subspan(sizeof(LetterHead));
  }
};

// A long send or receive under way, in pieces that MPI can count.
using Transfer = absl::InlinedVector<MpiRequest, 1>;

// Thread-safe; calls that say "held" are for the `done` of Wait alone.
class MpiMail {
 public:
  // A body up to this size makes a letter that MPI sends on at once.
  static constexpr int64_t kShortBytes = 3072;

  // `calls` outlives this.
  explicit MpiMail(MpiCalls& calls);
  ~MpiMail();
  MpiMail(const MpiMail&) = delete;
  MpiMail& operator=(const MpiMail&) = delete;

  int rank() const { return calls_.rank(); }
  int size() const { return calls_.size(); }

  // Posts a letter to a world rank, also this one.
  void Post(int to, const LetterHead& head, std::span<const std::byte> body);
  // Posts a message of any size, whose data is copied.
  void PostMessage(int to, uint64_t context, int64_t tag,
                   std::span<const std::byte> data);

  // A tag for what goes from here to `to`, beside letters that are yet to be
  // posted. What goes under one tag arrives in its order.
  int NextBulkTag(int to);
  Transfer StartSend(int to, int bulk_tag, std::span<const std::byte> data);
  Transfer StartReceive(int from, int bulk_tag, std::span<std::byte> data);
  // For messages from this rank to itself, whose body is in the letter.
  bool is_self(int world_rank) const { return world_rank == rank(); }

  // Takes in what has arrived and asks `done` until it says yes, for `timeout`
  // at most. Gives the last done(). MPI's failures end it, too: see error().
  bool Wait(absl::Duration timeout, absl::FunctionRef<bool()> done);

  // Held. The oldest letter of a key.
  std::optional<Letter> TryTake(const LetterKey& key);
  bool Has(const LetterKey& key) const { return letters_.contains(key); }
  // Held. Any letter of a kind and context, of the lowest rank; or null.
  const std::pair<const LetterKey, std::deque<Letter>>* FirstOf(
      LetterKind kind, uint64_t context) const;
  // Held.
  bool HasEnded(Transfer& transfer);
  void Cancel(Transfer& transfer);

  // The first failure of a call to MPI, or OK.
  absl::Status error() const;

  // Lets go the letters of all contexts from `first` to `last`, and receives
  // what goes beside them. All that were sent have arrived.
  void Discard(uint64_t first, uint64_t last, absl::Duration timeout);

  // Waits until nothing that was posted is under way any more.
  bool Flush(absl::Duration timeout);

 private:
  // On its way, with the memory it is sent from.
  struct Outgoing {
    Transfer transfer;
    std::vector<std::byte> bytes;
  };

  void Check(int code, const char* call);
  void SendOwned(int to, int tag, std::vector<std::byte> bytes);
  Transfer StartSendHeld(int to, int tag, std::span<const std::byte> data);
  void Poll();
  void TakeIn();
  // Sends go on while this process computes.
  void SendOnBeside(const std::stop_token& stop);

  MpiCalls& calls_;
  mutable std::mutex mutex_;
  std::condition_variable_any has_outgoing_;
  std::map<LetterKey, std::deque<Letter>> letters_;
  std::list<Outgoing> outgoing_;
  std::vector<int> bulk_tags_;  // the next one to each rank
  absl::Status error_;
  std::jthread sends_;  // the last member: it uses the others
};

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_MPI_MPI_MAIL_H_
