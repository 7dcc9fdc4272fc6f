// SPDX-License-Identifier: Apache-2.0
#include "ckpt/core/coding.h"

#include <string>

#include "tests/testutil/status_matchers.h"

namespace shardshift::ckpt {
namespace {

using ::testing::HasSubstr;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

TEST(Encoder, WritesLittleEndian) {
  Encoder out;
  out.PutU32(0x04030201);
  out.PutString("ab");
  EXPECT_EQ(out.bytes(), std::string("\1\2\3\4\2\0\0\0\0\0\0\0ab", 14));
}

TEST(Decoder, ReadsBackWhatWasWritten) {
  Encoder out;
  out.PutU8(200);
  out.PutU32(0xfffffffe);
  out.PutU64(0xfffffffffffffffd);
  out.PutInt(0x7fffffffffffffff);
  out.PutVarint(0);
  out.PutVarint(300);
  out.PutVarint(0x7fffffffffffffff);
  out.PutShortString("");
  out.PutShortString(std::string(200, 'x'));
  Decoder in(AsBytes(out.bytes()));
  EXPECT_EQ(in.GetU8(), 200);
  EXPECT_EQ(in.GetU32(), 0xfffffffe);
  EXPECT_EQ(in.GetU64(), 0xfffffffffffffffd);
  EXPECT_EQ(in.GetInt(), 0x7fffffffffffffff);
  EXPECT_EQ(in.GetVarint(), 0);
  EXPECT_EQ(in.GetVarint(), 300);
  EXPECT_EQ(in.GetVarint(), 0x7fffffffffffffff);
  EXPECT_EQ(in.GetShortString(), "");
  EXPECT_EQ(in.GetShortString(), std::string(200, 'x'));
  EXPECT_OK(in.Finish());
}

TEST(Encoder, WritesVarintsOfSevenBits) {
  Encoder out;
  out.PutVarint(127);
  out.PutVarint(128);
  out.PutShortString("ab");
  EXPECT_EQ(out.bytes(),
            "\x7f\x80\x01\x02"
            "ab");
}

TEST(Decoder, RefusesVarintsThatAreTooLong) {
  for (const std::string& bytes :
       {std::string("\x80\x00", 2), std::string(9, '\xff') + '\x01',
        std::string(3, '\x80')}) {
    Decoder in(AsBytes(bytes));
    EXPECT_EQ(in.GetVarint(), 0);
    EXPECT_FALSE(in.ok());
  }
}

TEST(Decoder, KeepsTheFirstFailure) {
  Decoder in(AsBytes("abc"));
  EXPECT_EQ(in.GetU32(), 0);
  EXPECT_EQ(in.GetU8(), 0);
  EXPECT_THAT(in.Finish(),
              StatusIs(kDataLoss, HasSubstr("ends early at byte 0 of 3")));
}

TEST(Decoder, RefusesLeftOverBytes) {
  Decoder in(AsBytes("abcde"));
  in.GetU32();
  EXPECT_THAT(in.Finish(), StatusIs(kDataLoss, HasSubstr("1 bytes left")));
}

TEST(Decoder, RefusesCountsTheInputCannotHold) {
  Encoder out;
  out.PutVarint(int64_t{1} << 60);
  Decoder strings(AsBytes(out.bytes()));
  EXPECT_EQ(strings.GetShortString(), "");
  EXPECT_FALSE(strings.ok());

  Encoder three;
  three.PutVarint(3);
  three.PutU64(0);
  three.PutU64(0);
  Decoder words(AsBytes(three.bytes()));
  EXPECT_EQ(words.GetCount(8), 0);
  EXPECT_FALSE(words.ok());
  Decoder bytes(AsBytes(three.bytes()));
  EXPECT_EQ(bytes.GetCount(5), 3);
}

TEST(Decoder, RefusesNumbersBeyondInt64) {
  Encoder out;
  out.PutU64(uint64_t{1} << 63);
  Decoder in(AsBytes(out.bytes()));
  EXPECT_EQ(in.GetInt(), 0);
  EXPECT_THAT(in.Finish(), StatusIs(kDataLoss, HasSubstr("63 bits")));
}

}  // namespace
}  // namespace shardshift::ckpt
