// SPDX-License-Identifier: Apache-2.0
#include "tools/svg.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace shardshift {
namespace {

std::string Number(double value) {
  std::string text = absl::StrFormat("%.1f", value);
  return std::string(absl::StripSuffix(text, ".0"));
}

}  // namespace

std::string EscapeXml(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += absl::ascii_isprint(c) || c == '\n' ? c : '?';
    }
  }
  return escaped;
}

std::string StyleSheet() {
  return R"(<style>
text { font: 12px sans-serif; fill: #1b1f24; }
.small { font-size: 10px; }
.heading { font-size: 18px; font-weight: bold; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.muted { fill: #59636e; }
.paper { fill: #ffffff; }
.frame { fill: none; stroke: #c4c9cf; }
.first { fill: #4a8fe7; }
.second { fill: #e39b3c; }
.third { fill: #52ab7a; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e8eb; }
  .muted { fill: #9aa4af; }
  .paper { fill: #16191d; }
  .frame { stroke: #454c55; }
  .first { fill: #2f6cc0; }
  .second { fill: #b3731f; }
  .third { fill: #35825a; }
}
</style>
)";
}

void Drawing::BeginGroup(absl::string_view title) {
  absl::StrAppend(&elements_, "<g><title>", EscapeXml(title), "</title>\n");
}

void Drawing::EndGroup() { absl::StrAppend(&elements_, "</g>\n"); }

void Drawing::Rect(const Frame& frame, absl::string_view classes,
                   double opacity) {
  absl::StrAppend(&elements_, "<rect x=\"", Number(frame.x), "\" y=\"",
                  Number(frame.y), "\" width=\"", Number(frame.width),
                  "\" height=\"", Number(frame.height), "\" class=\"", classes,
                  "\"");
  if (opacity < 1) {
    absl::StrAppendFormat(&elements_, " fill-opacity=\"%.2f\"", opacity);
  }
  absl::StrAppend(&elements_, "/>\n");
}

void Drawing::Text(double x, double y, absl::string_view text,
                   absl::string_view classes) {
  AppendText(absl::StrCat("x=\"", Number(x), "\" y=\"", Number(y), "\""), text,
             classes);
}

void Drawing::VerticalText(double x, double y, absl::string_view text,
                           absl::string_view classes) {
  AppendText(absl::StrCat("transform=\"translate(", Number(x), " ", Number(y),
                          ") rotate(-90)\""),
             text, classes);
}

void Drawing::AppendText(absl::string_view place, absl::string_view text,
                         absl::string_view classes) {
  if (text.empty()) return;
  absl::StrAppend(&elements_, "<text ", place);
  if (!classes.empty()) {
    absl::StrAppend(&elements_, " class=\"", classes, "\"");
  }
  absl::StrAppend(&elements_, ">", EscapeXml(text), "</text>\n");
}

}  // namespace shardshift
