// A picture and the file it is written to: FILE.svg, or FILE.html, which has
// the same drawing and a table of its numbers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_PICTURE_H_
#define SHARDSHIFT_TOOLS_PICTURE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/svg.h"
#include "tools/text_table.h"

namespace shardshift {

struct Picture {
  std::string title;
  std::string subtitle;
  double width = 0;  // of the drawing, in pixels
  double height = 0;
  Drawing drawing = {};
  std::vector<Column> columns = {};
  std::vector<std::vector<std::string>> rows = {};  // a cell for each column
};

std::string SvgText(const Picture& picture);
std::string HtmlText(const Picture& picture);

// Errors: InvalidArgument unless the name ends in .svg or .html; AlreadyExists
// if there is anything of that name.
absl::Status CheckPicturePath(const std::string& path);

// Makes the file, in the form that its name says; none is left on an error.
// Errors: as CheckPicturePath and ckpt::File::Create.
absl::Status WritePicture(const std::string& path, const Picture& picture);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_PICTURE_H_
