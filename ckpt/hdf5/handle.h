// libhdf5's identifiers, errors and lock, wrapped.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_CKPT_HDF5_HANDLE_H_
#define SHARDSHIFT_CKPT_HDF5_HANDLE_H_

#include <hdf5.h>

#include <mutex>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shardshift::ckpt {

// Owns an identifier of any kind.
class Handle {
 public:
  Handle() = default;
  explicit Handle(hid_t id) : id_(id) {}
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;
  ~Handle() { Close(); }

  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }
  // False if the library fails to close it. Closing nothing succeeds.
  bool Close();

 private:
  hid_t id_ = H5I_INVALID_HID;
};

// To be held around any use of libhdf5: serialises it in the process, whether
// or not the library was built thread-safe, and keeps it from printing.
class Hdf5Lock {
 public:
  Hdf5Lock();
  ~Hdf5Lock();
  Hdf5Lock(const Hdf5Lock&) = delete;
  Hdf5Lock& operator=(const Hdf5Lock&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
};

// FailedPrecondition unless `loaded`, or the library at run time, is the
// version compiled against: any other one ends the process at the first call
// that opens a file. REQUIRES: an Hdf5Lock is held.
struct Hdf5Version {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
};
absl::Status CheckHdf5Version(const Hdf5Version& loaded);
absl::Status CheckHdf5Version();

// Internal, "cannot <what> <path>: <the library's innermost reason>".
// ResourceExhausted if the system's reason was a full disk.
absl::Status Hdf5Error(absl::string_view what, absl::string_view path);

}  // namespace shardshift::ckpt

#endif  // SHARDSHIFT_CKPT_HDF5_HANDLE_H_
