// The shared library that is linked to MPI.
// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "trainer/comm/mpi/mpi_calls.h"

namespace shardshift::trainer {
namespace {

// Handles are pointers in one MPI and numbers in another.
template <typename Handle>
uint64_t BitsOf(Handle handle) {
  static_assert(sizeof(Handle) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &handle, sizeof(handle));
  return bits;
}
template <typename Handle>
Handle HandleOf(uint64_t bits) {
  Handle handle;
  std::memcpy(&handle, &bits, sizeof(handle));
  return handle;
}

class LinkedMpi final : public MpiCalls {
 public:
  int Start() override {
    int provided = 0;
    const int code =
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    if (code != MPI_SUCCESS) return code;
    if (provided < MPI_THREAD_SERIALIZED) return MPI_ERR_UNSUPPORTED_OPERATION;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    int* bound = nullptr;
    int is_set = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&bound),
                      &is_set);
    if (is_set != 0) max_tag_ = *bound;
    return MPI_SUCCESS;
  }
  void Finish() override { MPI_Finalize(); }
  void Abort(int exit_code) override { MPI_Abort(MPI_COMM_WORLD, exit_code); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int max_tag() const override { return max_tag_; }
  std::string ErrorText(int code) const override {
    std::array<char, MPI_MAX_ERROR_STRING> text = {};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    return std::string(text.data(), static_cast<size_t>(length));
  }

  int Send(const void* data, int bytes, int to, int tag,
           MpiRequest& request) override {
    MPI_Request handle = MPI_REQUEST_NULL;
    const int code =
        MPI_Isend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &handle);
    request.bits = BitsOf(handle);
    return code;
  }
  int Receive(void* data, int bytes, int from, int tag,
              MpiRequest& request) override {
    MPI_Request handle = MPI_REQUEST_NULL;
    const int code =
        MPI_Irecv(data, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, &handle);
    request.bits = BitsOf(handle);
    return code;
  }
  int Test(MpiRequest& request, bool& has_ended) override {
    auto handle = HandleOf<MPI_Request>(request.bits);
    int flag = 0;
    const int code = MPI_Test(&handle, &flag, MPI_STATUS_IGNORE);
    request.bits = BitsOf(handle);
    has_ended = flag != 0;
    return code;
  }
  int Cancel(MpiRequest& request) override {
    auto handle = HandleOf<MPI_Request>(request.bits);
    return MPI_Cancel(&handle);
  }

  int Find(int tag, MpiMessage& message) override {
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    int flag = 0;
    const int code = MPI_Improbe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &flag,
                                 &handle, &status);
    if (code != MPI_SUCCESS || flag == 0) return code;
    message.bits = BitsOf(handle);
    message.source = status.MPI_SOURCE;
    return MPI_Get_count(&status, MPI_BYTE, &message.bytes);
  }
  int Take(MpiMessage& message, void* data) override {
    auto handle = HandleOf<MPI_Message>(message.bits);
    return MPI_Mrecv(data, message.bytes, MPI_BYTE, &handle, MPI_STATUS_IGNORE);
  }

 private:
  int rank_ = 0;
  int size_ = 1;
  int max_tag_ = std::numeric_limits<int16_t>::max();  // MPI's least
};

}  // namespace
}  // namespace shardshift::trainer

extern "C" shardshift::trainer::MpiCalls* shardshift_mpi_calls() {
  static shardshift::trainer::LinkedMpi calls;
  return &calls;
}
