// npy arrays: every element type survives writing and reading; other byte and axis orders are read;
// files with a wrong size or with objects are refused.

#include "io/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using millrace::testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A version 1 file with this dict and data.
std::string npy(const std::string& dict, const std::string& data, char version = 1) {
  std::string out("\x93NUMPY", 6);
  out += version;
  out += '\0';
  out += static_cast<char>(dict.size() & 0xffU);
  out += static_cast<char>(dict.size() >> 8U);
  if (version > 1) out += std::string(2, '\0');
  return out + dict + data;
}

std::string dict(const std::string& type, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }\n";
}

std::string error_of_npy(const std::string& bytes) {
  const auto tensor = parse_npy(bytes);
  if (tensor.ok()) return "";
  EXPECT_EQ(tensor.status().code(), StatusCode::kInvalidData);
  return tensor.status().message();
}

TEST(Npy, EveryElementTypeSurvives) {
  for (const DType dtype : {DType::kBool, DType::kUint8, DType::kInt8, DType::kInt16, DType::kInt32,
                            DType::kInt64, DType::kFloat16, DType::kBfloat16, DType::kFloat32,
                            DType::kFloat64, DType::kComplex64, DType::kComplex128}) {
    for (const Dims& dims : {Dims{}, Dims{5}, Dims{0, 3}, Dims{2, 3, 4}}) {
      Tensor tensor;
      ASSERT_TRUE(tensor.resize(dtype, dims).ok());
      for (int64_t i = 0; i < tensor.bytes(); ++i)
        tensor.raw()[i] = static_cast<std::byte>(dtype == DType::kBool ? i % 2 : i);
      const std::string data(reinterpret_cast<const char*>(tensor.raw()),
                             static_cast<size_t>(tensor.bytes()));
      const std::string header = npy_header(tensor);
      EXPECT_EQ(header.size() % 64, 0U);
      const auto again = parse_npy(header + data);
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      EXPECT_EQ(again->dtype(), dtype);
      EXPECT_EQ(again->dims(), tensor.dims());
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(again->raw()), data.size()), data);
    }
  }
}

TEST(Npy, WritesTheBytesOfNumpy) {
  const std::string file = bytes_of("tests/data/models/linear/x.npy");
  const auto tensor = parse_npy(file);
  ASSERT_TRUE(tensor.ok()) << tensor.status().to_string();
  EXPECT_EQ(npy_header(*tensor), file.substr(0, file.size() - tensor->bytes()));
}

TEST(Npy, ReadsOtherOrders) {
  const std::string data("\0\x01\0\x02\0\x03\0\x04\0\x05\0\x06", 12);
  const auto big = parse_npy(npy(dict(">i2", "(2, 3)"), data));
  ASSERT_TRUE(big.ok()) << big.status().to_string();
  EXPECT_THAT(big->values<int16_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
  const auto fortran = parse_npy(npy(dict(">i2", "(2, 3)", true), data));
  ASSERT_TRUE(fortran.ok()) << fortran.status().to_string();
  EXPECT_THAT(fortran->dims(), ElementsAre(2, 3));
  EXPECT_THAT(fortran->values<int16_t>(), ElementsAre(1, 3, 5, 2, 4, 6));
  const auto complex =
      parse_npy(npy(dict(">c8", "(1,)"), std::string("\x3f\x80\0\0\x40\0\0\0", 8)));
  ASSERT_TRUE(complex.ok());
  EXPECT_EQ(reinterpret_cast<const float*>(complex->raw())[0], 1.0F);
  EXPECT_EQ(reinterpret_cast<const float*>(complex->raw())[1], 2.0F);
}

TEST(Npy, ReadsLaterVersionsAndOddSpelling) {
  EXPECT_EQ(error_of_npy(npy(dict("<f4", "(2,)"), std::string(8, '\0'), 2)), "");
  EXPECT_EQ(error_of_npy(npy(dict("<f4", "(2,)"), std::string(8, '\0'), 3)), "");
  EXPECT_EQ(error_of_npy(npy("{\"shape\":(2),\"descr\":\"<f4\",\"fortran_order\":False}",
                             std::string(8, '\0'))),
            "");
}

TEST(Npy, UnsignedNumbersMustFit) {
  const auto fits = parse_npy(npy(dict("<u4", "(1,)"), std::string("\xff\xff\xff\x7f", 4)));
  ASSERT_TRUE(fits.ok());
  EXPECT_EQ(fits->data<int32_t>()[0], 0x7fffffff);
  EXPECT_THAT(error_of_npy(npy(dict("<u4", "(1,)"), std::string("\xff\xff\xff\xff", 4))),
              HasSubstr("unsigned values beyond the range of i32"));
}

TEST(Npy, RefusesObjects) {
  const auto tensor = read_npy("tests/data/params_malformed/ex_object.npy");
  ASSERT_FALSE(tensor.ok());
  EXPECT_THAT(tensor.status().to_string(), HasSubstr("ex_object.npy: npy type '|O'"));
}

TEST(Npy, RefusesWhatLies) {
  const std::string eight(8, '\0');
  EXPECT_THAT(error_of_npy(""), HasSubstr("not an npy file: found only 0 bytes"));
  EXPECT_THAT(error_of_npy("PK\x03\x04 something else"), HasSubstr("\\x93NUMPY"));
  EXPECT_THAT(error_of_npy(npy(dict("<f4", "(3,)"), eight)),
              HasSubstr("expected 12 bytes of data for its shape, found 8"));
  EXPECT_THAT(error_of_npy(npy(dict("<f4", "(1,)"), eight)), HasSubstr("expected 4 bytes of data"));
  EXPECT_THAT(error_of_npy(npy(dict("<f4", "(1099511627776, 1099511627776)"), eight)),
              HasSubstr("too large"));
  EXPECT_THAT(error_of_npy(npy(dict("<f4", "(-2,)"), eight)), HasSubstr("a tuple of sizes"));
  EXPECT_THAT(error_of_npy(npy(dict("<f4", "(99999999999999999999,)"), eight)),
              HasSubstr("a tuple of sizes"));
  EXPECT_THAT(error_of_npy(npy(dict("<U4", "(1,)"), eight)), HasSubstr("npy type '<U4'"));
  EXPECT_THAT(
      error_of_npy(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", eight)),
      HasSubstr("a plain type string"));
  EXPECT_THAT(error_of_npy(npy("{'descr': '<f4', 'shape': (2,)}", eight)),
              HasSubstr("expected the keys"));
  EXPECT_THAT(error_of_npy(npy("{'descr': '<f4', 'code': 1}", eight)),
              HasSubstr("unknown key 'code'"));
  EXPECT_THAT(error_of_npy(npy(dict("<f4", "(2,)"), eight, 7)),
              HasSubstr("expected 1 to 3, found 7"));
  std::string long_header = npy(dict("<f4", "(2,)"), eight);
  long_header[9] = '\x7f';
  EXPECT_THAT(error_of_npy(long_header), HasSubstr("npy header: expected at most"));
  EXPECT_THAT(read_npy("tests/data/none.npy").status().to_string(), HasSubstr("none.npy"));
}

TEST(Npy, EveryCutIsRefused) {
  const std::string whole = bytes_of("tests/data/models/linear/x.npy");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(error_of_npy(whole.substr(0, size)), "");
}

}  // namespace
}  // namespace millrace::io
