// JSON text that nobody has checked.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_RESHARD_LAYOUT_JSON_TEXT_H_
#define SHARDSHIFT_RESHARD_LAYOUT_JSON_TEXT_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shardshift::reshard {

// What follows JSON by calls, and indents it, wants it no deeper than a state
// is: far less would overflow a stack or fill a memory.
inline constexpr int kMaxJsonDepth = 100;

// Errors: InvalidArgument if brackets of `text` nest deeper.
absl::Status CheckJsonDepth(absl::string_view text);

// Base of what takes JSON as a stream of events and may refuse it.
class JsonHandler : public nlohmann::json::json_sax_t {
 public:
  const absl::Status& status() const { return status_; }

  bool binary(nlohmann::json::binary_t& value) final;
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::json::exception& error) final;

 protected:
  // Stops the reader when a handler returns it. The error is DataLoss.
  bool Refuse(absl::string_view problem);

 private:
  absl::Status status_;
};

// Passes `text` to `handler`. A NUL byte, which nlohmann's reader takes for the
// end of the text, is refused. Nothing recurses, however deep the text nests.
// Errors: DataLoss telling what is no JSON where, or what the handler refused.
absl::Status ReadJson(absl::string_view text, JsonHandler& handler);

// The value of `text`. Stricter than nlohmann's parse: a key that comes twice
// in an object is refused, too, as readers do not agree which one counts.
// Errors: DataLoss telling what is wrong at which byte; as CheckJsonDepth.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text);

// `text` in quotes for a message: escaped where it is not printable ASCII, and
// cut if it is long.
std::string Quoted(absl::string_view text);

}  // namespace shardshift::reshard

#endif  // SHARDSHIFT_RESHARD_LAYOUT_JSON_TEXT_H_
