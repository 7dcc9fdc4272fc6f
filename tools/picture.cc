// SPDX-License-Identifier: Apache-2.0
#include "tools/picture.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/core/status_macros.h"
#include "ckpt/io/file.h"

namespace shardshift {
namespace {

constexpr double kMargin = 24;
constexpr double kHeadHeight = 64;
// An average letter of the heading and of other text.
constexpr double kHeadingLetter = 12;
constexpr double kLetter = 6.5;

constexpr char kSvgSpace[] = "xmlns=\"http://www.w3.org/2000/svg\"";

std::string SizeAttributes(double width, double height) {
  return absl::StrFormat(
      "width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\"",
      std::ceil(width), std::ceil(height), std::ceil(width), std::ceil(height));
}

std::string CellText(absl::string_view tag, const Column& column,
                     const std::string& text) {
  const char* align = column.align == Align::kRight ? " class=\"number\"" : "";
  return absl::StrCat("<", tag, align, ">", EscapeXml(text), "</", tag, ">");
}

std::string TableText(const Picture& picture) {
  std::string text = "<table>\n<thead><tr>";
  for (const Column& column : picture.columns) {
    absl::StrAppend(&text, CellText("th", column, column.title));
  }
  absl::StrAppend(&text, "</tr></thead>\n<tbody>\n");
  for (const std::vector<std::string>& row : picture.rows) {
    absl::StrAppend(&text, "<tr>");
    for (size_t c = 0; c < picture.columns.size(); ++c) {
      absl::StrAppend(&text, CellText("td", picture.columns[c], row[c]));
    }
    absl::StrAppend(&text, "</tr>\n");
  }
  return absl::StrCat(text, "</tbody>\n</table>\n");
}

constexpr char kPageStyle[] = R"(<style>
:root { color-scheme: light dark; }
body { margin: 24px; font: 14px sans-serif; background: #ffffff; color: #1b1f24; }
h1 { font-size: 20px; }
svg { display: block; margin: 16px 0; }
table { border-collapse: collapse; }
th, td { padding: 3px 12px; border-bottom: 1px solid #c4c9cf; text-align: left; }
.number { text-align: right; }
@media (prefers-color-scheme: dark) {
  body { background: #16191d; color: #e6e8eb; }
  th, td { border-color: #454c55; }
}
</style>
)";

bool IsHtml(const std::string& path) { return absl::EndsWith(path, ".html"); }

}  // namespace

std::string SvgText(const Picture& picture) {
  const double width =
      2 * kMargin +
      std::max({picture.width,
                kHeadingLetter * static_cast<double>(picture.title.size()),
                kLetter * static_cast<double>(picture.subtitle.size())});
  const double height = 2 * kMargin + kHeadHeight + picture.height;
  Drawing head;
  head.Rect({.width = width, .height = height}, "paper");
  head.Text(kMargin, kMargin + 16, picture.title, "heading");
  head.Text(kMargin, kMargin + 38, picture.subtitle, "muted");
  return absl::StrCat(
      "<svg ", kSvgSpace, " ", SizeAttributes(width, height),
      " role=\"img\">\n<title>", EscapeXml(picture.title), "</title>\n",
      StyleSheet(), head.elements(),
      absl::StrFormat("<g transform=\"translate(%.0f %.0f)\">\n", kMargin,
                      kMargin + kHeadHeight),
      picture.drawing.elements(), "</g>\n</svg>\n");
}

std::string HtmlText(const Picture& picture) {
  const std::string title = EscapeXml(picture.title);
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta "
      "charset=\"utf-8\"/>\n<title>",
      title, "</title>\n", kPageStyle, StyleSheet(), "</head>\n<body>\n<h1>",
      title, "</h1>\n<p>", EscapeXml(picture.subtitle), "</p>\n<svg ",
      kSvgSpace, " ", SizeAttributes(picture.width, picture.height),
      " role=\"img\">\n", picture.drawing.elements(), "</svg>\n",
      TableText(picture), "</body>\n</html>\n");
}

absl::Status CheckPicturePath(const std::string& path) {
  if (!absl::EndsWith(path, ".svg") && !IsHtml(path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--picture ", path, ": expected a name that ends in .svg or .html"));
  }
  SS_ASSIGN_OR_RETURN(const bool exists, ckpt::Exists(path));
  if (!exists) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      "--picture ", path, " exists; remove it or name another file"));
}

absl::Status WritePicture(const std::string& path, const Picture& picture) {
  SS_RETURN_IF_ERROR(CheckPicturePath(path));
  const std::string text = IsHtml(path) ? HtmlText(picture) : SvgText(picture);
  SS_ASSIGN_OR_RETURN(const ckpt::File file, ckpt::File::Create(path));
  absl::Status written = file.WriteAt(0, std::as_bytes(std::span(text)));
  if (!written.ok()) ckpt::RemoveTree(path).IgnoreError();
  return written;
}

}  // namespace shardshift
