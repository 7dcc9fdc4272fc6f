// What we use of MPI: point-to-point calls that do not wait.
// The one implementation is in a shared library of its own (mpi_module.cc), so
// that programs need no MPI until a launcher has started them. It crosses the
// border between both with plain types alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TRAINER_COMM_MPI_MPI_CALLS_H_
#define SHARDSHIFT_TRAINER_COMM_MPI_MPI_CALLS_H_

#include <cstdint>
#include <string>

namespace shardshift::trainer {

// An operation under way, or a message that has been found: handles of MPI.
struct MpiRequest {
  uint64_t bits = 0;
};
struct MpiMessage {
  uint64_t bits = 0;
  int source = -1;  // -1: there is none
  int bytes = 0;
};

// Calls give an MPI error code, 0 for success. Any thread may call, one at a
// time.
class MpiCalls {
 public:
  virtual ~MpiCalls() = default;

  // Once, before all others.
  virtual int Start() = 0;
  // Once, after all others and on all processes, for which it waits.
  virtual void Finish() = 0;
  // Ends all processes.
  virtual void Abort(int exit_code) = 0;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int max_tag() const = 0;
  virtual std::string ErrorText(int code) const = 0;

  // The memory stays as it is until Test has found the end.
  virtual int Send(const void* data, int bytes, int to, int tag,
                   MpiRequest& request) = 0;
  virtual int Receive(void* data, int bytes, int from, int tag,
                      MpiRequest& request) = 0;
  virtual int Test(MpiRequest& request, bool& has_ended) = 0;
  // Of a receive; ends it, unless its message is already on its way.
  virtual int Cancel(MpiRequest& request) = 0;

  // Finds a message with a tag, of any rank; nobody else can then receive it.
  virtual int Find(int tag, MpiMessage& message) = 0;
  virtual int Take(MpiMessage& message, void* data) = 0;
};

// The module's one symbol, of this type.
inline constexpr char kMpiCallsSymbol[] = "shardshift_mpi_calls";
using MakeMpiCalls = MpiCalls* (*)();

}  // namespace shardshift::trainer

#endif  // SHARDSHIFT_TRAINER_COMM_MPI_MPI_CALLS_H_
