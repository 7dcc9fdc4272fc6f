// SPDX-License-Identifier: Apache-2.0
#include "tools/picture.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckpt/io/file.h"
#include "tests/ckpt/sample.h"
#include "tests/testutil/status_matchers.h"
#include "tools/plan_picture.h"
#include "tools/rank_words.h"

namespace shardshift {
namespace {

using reshard::Layout;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(EscapeXml, LeavesNothingThatXmlWouldRead) {
  EXPECT_EQ(EscapeXml("a <b> & \"c\"\n"), "a &lt;b&gt; &amp; &quot;c&quot;\n");
  EXPECT_EQ(EscapeXml("\x01\xff\x7f"), "???");
}

TEST(ExpertsText, SaysNoneWhereNoLayerOfTheStageHasExperts) {
  reshard::ModelConfig model;
  model.num_layers = 4;
  model.num_experts = 4;
  model.dense_layers = {0, 1, 2};
  const Layout layout = {.pipeline = 2, .data = 2, .expert = 2};
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
    texts.push_back(ExpertsText(model, layout, rank));
  }
  EXPECT_THAT(texts, ElementsAre("none", "none", "0-1", "2-3"));
  EXPECT_THAT(ModelText(model), HasSubstr("4 experts in 1 layer"));
}

Picture SmallPicture() {
  Picture picture{
      .title = "a < b", .subtitle = "c & d", .width = 10.0, .height = 20.0};
  picture.drawing.Rect({.x = 1, .y = 2.25, .width = 3, .height = 4.0}, "first",
                       0.5);
  picture.columns = {{"name"}, {"bytes", Align::kRight}};
  picture.rows = {{"x > y", "5 B"}};
  return picture;
}

TEST(Picture, IsTheSameDrawingInBothForms) {
  const Picture picture = SmallPicture();
  const char* rect =
      "<rect x=\"1\" y=\"2.2\" width=\"3\" height=\"4\" class=\"first\" "
      "fill-opacity=\"0.50\"/>";
  EXPECT_THAT(SvgText(picture), AllOf(HasSubstr(rect), HasSubstr("a &lt; b")));
  EXPECT_THAT(HtmlText(picture),
              AllOf(HasSubstr(rect), HasSubstr("<h1>a &lt; b</h1>"),
                    HasSubstr("<td>x &gt; y</td>"
                              "<td class=\"number\">5 B</td>")));
}

TEST(WritePicture, RefusesOtherFormsAndWhatExists) {
  const ckpt::TempDir directory;
  const std::string svg = ckpt::JoinPath(directory.path(), "a.svg");
  const std::string html = ckpt::JoinPath(directory.path(), "a.html");
  const Picture picture = SmallPicture();
  EXPECT_OK(WritePicture(svg, picture));
  EXPECT_OK(WritePicture(html, picture));
  EXPECT_EQ(ckpt::ReadWholeFile(svg).value(), SvgText(picture));
  EXPECT_EQ(ckpt::ReadWholeFile(html).value(), HtmlText(picture));
  for (const std::string& path : {svg, html}) {
    EXPECT_THAT(WritePicture(path, picture),
                StatusIs(absl::StatusCode::kAlreadyExists,
                         AllOf(HasSubstr(path), HasSubstr("exists"))));
  }
  for (const char* name : {"a.png", "a", "svg"}) {
    const std::string path = ckpt::JoinPath(directory.path(), name);
    EXPECT_THAT(WritePicture(path, picture),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(path), HasSubstr(".svg or .html"))));
    EXPECT_FALSE(ckpt::Exists(path).value());
  }
}

std::vector<int64_t> UpTo(int64_t end) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < end; ++i) numbers.push_back(i);
  return numbers;
}

std::vector<std::string> LabelsOf(const std::optional<Layout>& layout,
                                  const std::vector<int64_t>& parts) {
  const PartGroups groups(layout, parts);
  std::vector<std::string> labels;
  for (int64_t i = 0; i < groups.size(); ++i) {
    labels.push_back(groups.Label(i));
  }
  return labels;
}

TEST(PartGroups, AreSinglePartsIfTheseAreFew) {
  EXPECT_THAT(
      LabelsOf(Layout{.tensor = 2, .pipeline = 2}, {0, 1, 3}),
      ElementsAre("stage 0: part 0", "stage 0: part 1", "stage 1: part 3"));
  EXPECT_THAT(LabelsOf(std::nullopt, {0, 7}), ElementsAre("part 0", "part 7"));
}

TEST(PartGroups, KeepWithinAStage) {
  // 3 stages of 21 ranks: at most 10 groups a stage.
  const Layout layout = {.tensor = 7, .pipeline = 3, .data = 3};
  const std::vector<std::string> labels = LabelsOf(layout, UpTo(63));
  ASSERT_EQ(labels.size(), 3 * 7);
  EXPECT_EQ(labels[0], "stage 0: parts 0-2");
  EXPECT_EQ(labels[6], "stage 0: parts 18-20");
  EXPECT_EQ(labels[7], "stage 1: parts 21-23");
}

TEST(PartGroups, TakeStagesTogetherIfTheseAreMany) {
  const std::vector<std::string> labels =
      LabelsOf(Layout{.tensor = 2, .pipeline = 40}, UpTo(80));
  ASSERT_EQ(labels.size(), 20);
  EXPECT_EQ(labels[19], "stages 38-39: parts 76-79");
}

TEST(PartGroups, AreAtMost32AndHaveEveryPartOnce) {
  for (const int64_t tensor : {1, 3, 8}) {
    for (const int64_t pipeline : {1, 2, 5, 16, 32, 33, 64, 65}) {
      for (const int64_t data : {1, 2, 7, 64}) {
        const Layout layout = {
            .tensor = tensor, .pipeline = pipeline, .data = data};
        SCOPED_TRACE(ToString(layout));
        const std::vector<int64_t> parts = UpTo(layout.world_size());
        const PartGroups groups(layout, parts);
        EXPECT_LE(groups.size(), 32);
        int64_t last = 0;
        for (const int64_t part : parts) {
          const int64_t group = groups.GroupOf(part);
          EXPECT_TRUE(group == last || group == last + 1) << part;
          last = group;
        }
        EXPECT_EQ(last, groups.size() - 1);
      }
    }
  }
}

}  // namespace
}  // namespace shardshift
