// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hdf5/handle.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace shardshift::ckpt {
namespace {

std::mutex& LibraryMutex() {
  static std::mutex mutex;
  return mutex;
}

herr_t TakeDescription(unsigned, const H5E_error2_t* error, void* text) {
  *static_cast<std::string*>(text) = error->desc;
  return 1;  // stop at the first, which is the innermost
}

}  // namespace

Handle::Handle(Handle&& other) noexcept
    : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}

Handle& Handle::operator=(Handle&& other) noexcept {
  std::swap(id_, other.id_);
  return *this;
}

bool Handle::Close() {
  const hid_t id = std::exchange(id_, H5I_INVALID_HID);
  if (id < 0) return true;
  switch (H5Iget_type(id)) {
    case H5I_FILE:
      return H5Fclose(id) >= 0;
    case H5I_GROUP:
      return H5Gclose(id) >= 0;
    case H5I_DATATYPE:
      return H5Tclose(id) >= 0;
    case H5I_DATASPACE:
      return H5Sclose(id) >= 0;
    case H5I_DATASET:
      return H5Dclose(id) >= 0;
    case H5I_ATTR:
      return H5Aclose(id) >= 0;
    case H5I_GENPROP_LST:
      return H5Pclose(id) >= 0;
    default:
      return false;
  }
}

Hdf5Lock::Hdf5Lock() : lock_(LibraryMutex()) {
  // A thread's error stack prints by default.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

// A thread that ends does not free what its errors say.
Hdf5Lock::~Hdf5Lock() { H5Eclear2(H5E_DEFAULT); }

absl::Status CheckHdf5Version(const Hdf5Version& loaded) {
  if (loaded.major == H5_VERS_MAJOR && loaded.minor == H5_VERS_MINOR &&
      loaded.release == H5_VERS_RELEASE) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the HDF5 library loaded is ", loaded.major, ".", loaded.minor, ".",
      loaded.release, ", this program was compiled with ", H5_VERS_MAJOR, ".",
      H5_VERS_MINOR, ".", H5_VERS_RELEASE,
      "; build it again, or correct the path of libraries"));
}

absl::Status CheckHdf5Version() {
  Hdf5Version loaded;
  if (H5get_libversion(&loaded.major, &loaded.minor, &loaded.release) < 0) {
    return absl::InternalError("the HDF5 library does not tell its version");
  }
  return CheckHdf5Version(loaded);
}

absl::Status Hdf5Error(absl::string_view what, absl::string_view path) {
  std::string reason = "unknown reason";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, TakeDescription, &reason);
  const absl::StatusCode code = absl::StrContains(reason, "No space left")
                                    ? absl::StatusCode::kResourceExhausted
                                    : absl::StatusCode::kInternal;
  return absl::Status(
      code, absl::StrCat("cannot ", what, " ", path, ": HDF5: ", reason));
}

}  // namespace shardshift::ckpt
