// A drawing as SVG: shapes and text whose looks are classes of one style sheet,
// legible on a light and on a dark page. Without scripts, and the same calls
// give the same bytes.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_SVG_H_
#define SHARDSHIFT_TOOLS_SVG_H_

#include <string>

#include "absl/strings/string_view.h"

namespace shardshift {

// `text` as XML has it between tags and in attributes. What is not printable
// ASCII becomes '?'.
std::string EscapeXml(absl::string_view text);

// The style sheet. Classes of shapes: paper, frame (an outline), and the fills
// `first`, `second`, `third`. Of text: `middle`, `end` (where it is anchored;
// its start by default), `small`, `muted`, `heading`; "a b" is both.
std::string StyleSheet();

// Units: pixels from the top left corner.
class Drawing {
 public:
  struct Frame {
    double x = 0;
    double y = 0;
    double width = 0;
    double height = 0;
  };

  // What is drawn until EndGroup() shows `title` while the pointer is over it.
  void BeginGroup(absl::string_view title);
  void EndGroup();

  void Rect(const Frame& frame, absl::string_view classes, double opacity = 1);
  // (x, y) is on the base line.
  void Text(double x, double y, absl::string_view text,
            absl::string_view classes = "");
  // Reads upwards.
  void VerticalText(double x, double y, absl::string_view text,
                    absl::string_view classes = "");

  const std::string& elements() const { return elements_; }

 private:
  void AppendText(absl::string_view place, absl::string_view text,
                  absl::string_view classes);

  std::string elements_;
};

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_SVG_H_
