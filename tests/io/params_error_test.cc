// Parameter files that are truncated, have wrong lengths or do not match the program are refused
// with file, var and byte, without large allocations.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/wire.h"
#include "io/params.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using millrace::testing::bytes_of;
using millrace::testing::put_file;
using millrace::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

ParamSpec dense(const std::string& name, llvm::ArrayRef<int64_t> dims) {
  ParamSpec spec;
  spec.name = name;
  spec.dtype = DType::kFloat32;
  spec.dims.emplace(dims.begin(), dims.end());
  return spec;
}

// Error of reading b and w of the model `linear` from bytes; "" if there is none.
std::string error_of_params_error(const std::string& bytes) {
  const auto values =
      load_combined(ByteSource::of_memory(bytes, "p.bin"), {dense("b", {2}), dense("w", {3, 2})});
  if (values.ok()) return "";
  EXPECT_EQ(values.status().code(), StatusCode::kInvalidData) << values.status().to_string();
  return values.status().to_string();
}

std::string malformed(const char* name) {
  return bytes_of(std::string("tests/data/params_malformed/") + name);
}

TEST(ParamsError, FilesOfTheCorpus) {
  EXPECT_EQ(error_of_params_error(bytes_of("tests/data/models/linear/params")), "");
  EXPECT_THAT(error_of_params_error(malformed("ex_par_cut.bin")),
              HasSubstr("p.bin, 'w': data of f32 [3, 2] at byte 58: expected 24 bytes, found 19"));
  EXPECT_THAT(error_of_params_error(malformed("ex_par_lod.bin")),
              HasSubstr("'b': LoD level at byte 20: expected a multiple of 8 bytes, found 12"));
  EXPECT_THAT(error_of_params_error(malformed("ex_par_desc.bin")),
              HasSubstr("'b': size of the tensor descriptor at byte 16: expected 0 to 62, found "
                        "1000000"));
  EXPECT_THAT(error_of_params_error(malformed("ex_par_dims.bin")),
              HasSubstr("expected 137438953472 bytes, found 58"));
}

TEST(ParamsError, EveryCutIsRefused) {
  const std::string whole = bytes_of("tests/data/models/linear/params");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(error_of_params_error(whole.substr(0, size)), "") << size;
  EXPECT_THAT(error_of_params_error(whole + "x"),
              HasSubstr("expected 2 vars and the end of the file at byte 82, found 1 more bytes"));
  const std::string rows = bytes_of("tests/data/params/rows");
  ParamSpec spec;
  spec.name = "table";
  spec.kind = VarKind::kSelectedRows;
  for (size_t size = 0; size < rows.size(); ++size) {
    const std::string part = rows.substr(0, size);
    const auto value = load_param(ByteSource::of_memory(part, "rows"), spec);
    ASSERT_FALSE(value.ok()) << size;
    EXPECT_THAT(value.status().to_string(), HasSubstr("rows, 'table': ")) << size;
  }
}

// One changed byte is refused or results in values of the declared dims; nothing else happens.
TEST(ParamsError, EveryChangedByteIsSafe) {
  const std::string whole = bytes_of("tests/data/models/linear/params");
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const unsigned char byte : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(byte);
      (void)error_of_params_error(changed);
    }
  }
}

// A file of one LoD tensor with the given fields.
std::string file_of(uint64_t levels, const std::string& lod, const std::string& descriptor,
                    const std::string& data, uint32_t version = 0, uint32_t tensor_version = 0) {
  const auto put = [](std::string& out, auto value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  std::string out;
  put(out, version);
  put(out, levels);
  out += lod;
  put(out, tensor_version);
  put(out, static_cast<int32_t>(descriptor.size()));
  return out + descriptor + data;
}

std::string descriptor_of(int64_t dtype, std::initializer_list<int64_t> dims) {
  std::string out;
  wire::put_int(out, 1, dtype);
  for (const int64_t dim : dims) wire::put_int(out, 2, dim);
  return out;
}

StatusOr<Value> read(const std::string& bytes) {
  ParamSpec spec;
  spec.name = "w";
  return load_param(ByteSource::of_memory(bytes, "w.bin"), spec);
}

std::string message(const std::string& bytes) {
  const auto value = read(bytes);
  return value.ok() ? "" : value.status().message();
}

TEST(ParamsError, NumbersThatLie) {
  const std::string two(8, '\0');
  EXPECT_THAT(message(file_of(0, "", descriptor_of(5, {-2}), two)),
              HasSubstr("dim 0: expected at least 0, found -2"));
  EXPECT_THAT(message(file_of(0, "", descriptor_of(200, {2}), two)),
              HasSubstr("expected the number of an element type, found 200"));
  EXPECT_THAT(message(file_of(0, "", descriptor_of(7, {2}), two)), HasSubstr("element type"));
  EXPECT_THAT(message(file_of(0, "", "\x10\x02", two)), HasSubstr("names no element type"));
  EXPECT_THAT(message(file_of(0, "", "\x08", two)), HasSubstr("truncated varint"));
  const int64_t big = int64_t{1} << 40;
  EXPECT_THAT(message(file_of(0, "", descriptor_of(5, {big, big}), two)),
              HasSubstr("expected 2^63 or more bytes, found 8"));
  EXPECT_THAT(message(file_of(0, "", descriptor_of(5, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), two)),
              HasSubstr("at most 9 dims"));
  EXPECT_THAT(message(file_of(0, "", descriptor_of(5, {1}), two)), HasSubstr("found 4 more bytes"));
  EXPECT_THAT(message(file_of(0, "", descriptor_of(5, {2}), two, 1)),
              HasSubstr("version at byte 0: expected 0, found 1"));
  EXPECT_THAT(message(file_of(0, "", descriptor_of(5, {2}), two, 0, 9)),
              HasSubstr("tensor version at byte 12: expected 0, found 9"));
  EXPECT_THAT(message(file_of(uint64_t{1} << 60, "", descriptor_of(5, {2}), two)),
              HasSubstr("number of LoD levels at byte 4: expected at most 1024"));
  EXPECT_THAT(message(file_of(1, std::string("\0\0\0\0\0\0\0\x40", 8), descriptor_of(5, {2}), two)),
              HasSubstr("LoD level: expected 4611686018427387904 bytes at byte 20"));
}

TEST(ParamsError, LodMustFitTheRows) {
  const auto level = [](std::initializer_list<uint64_t> offsets) {
    std::string out;
    const uint64_t bytes = offsets.size() * 8;
    out.append(reinterpret_cast<const char*>(&bytes), 8);
    for (const uint64_t offset : offsets) out.append(reinterpret_cast<const char*>(&offset), 8);
    return out;
  };
  const std::string rows = descriptor_of(5, {2});
  const std::string two(8, '\0');
  EXPECT_EQ(message(file_of(1, level({0, 1, 2}), rows, two)), "");
  EXPECT_THAT(message(file_of(1, level({0, 2, 1}), rows, two)), HasSubstr("LoD level 0"));
  EXPECT_THAT(message(file_of(1, level({0, 3}), rows, two)), HasSubstr("expected a last offset"));
  EXPECT_THAT(message(file_of(1, level({1, 2}), rows, two)), HasSubstr("first offset of 0"));
  EXPECT_THAT(message(file_of(1, level({0, ~uint64_t{0}, 2}), rows, two)), HasSubstr("LoD"));
  EXPECT_THAT(message(file_of(1, level({}), rows, two)), HasSubstr("at least one offset"));
}

TEST(ParamsError, PackedDimsAndUnknownFieldsAreRead) {
  std::string packed = "\x08\x05";
  wire::put_bytes(packed, 2, llvm::StringRef("\x02\x01", 2));
  wire::put_bytes(packed, 9, "later");
  const auto value = read(file_of(0, "", packed, std::string(8, '\0')));
  ASSERT_TRUE(value.ok()) << value.status().to_string();
  EXPECT_THAT(value->get_if<Tensor>()->dims(), ::testing::ElementsAre(2, 1));
}

TEST(ParamsError, BoolsAreZeroOrOne) {
  const auto value = read(file_of(0, "", descriptor_of(0, {3}), std::string("\0\x02\xff", 3)));
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(value->get_if<Tensor>()->raw()), 3),
            std::string("\0\x01\x01", 3));
}

TEST(ParamsError, DeclarationsMustFit) {
  const std::string whole = bytes_of("tests/data/models/linear/params");
  const auto load = [&](const ParamSpec& b, const ParamSpec& w) {
    const auto values = load_combined(ByteSource::of_memory(whole, "p.bin"), {b, w});
    return values.ok() ? "" : values.status().to_string();
  };
  EXPECT_EQ(load(dense("b", {-1}), dense("w", {3, -1})), "");
  EXPECT_THAT(load(dense("b", {2}), dense("w", {2, 3})),
              AllOf(HasSubstr("p.bin, 'w': var at byte 32: expected dims [2, 3], found [3, 2]"),
                    HasSubstr("var 1 of 2 in a combined file")));
  ParamSpec wrong = dense("b", {2});
  wrong.dtype = DType::kInt64;
  EXPECT_THAT(load(wrong, dense("w", {3, 2})),
              HasSubstr("'b': var at byte 0: expected dtype i64, found f32"));
  EXPECT_THAT(load(dense("b", {2}), dense("b", {3, 2})), HasSubstr("listed twice"));
}

TEST(ParamsError, SelectedRowsMustFit) {
  std::string bytes = bytes_of("tests/data/params/rows");
  ParamSpec spec;
  spec.name = "table";
  spec.kind = VarKind::kSelectedRows;
  const auto error = [&] {
    const auto value = load_param(ByteSource::of_memory(bytes, "rows"), spec);
    return value.ok() ? "" : value.status().message();
  };
  EXPECT_EQ(error(), "");
  bytes[12] = 9;  // the first row
  EXPECT_THAT(error(), HasSubstr("expected rows from 0 to 8, found 9"));
  bytes[12] = 7;
  bytes[11] = 1;  // number of rows
  EXPECT_THAT(error(), HasSubstr("number of rows at byte 4: found 72057594037927939"));
  bytes[11] = 0;
  spec.dims = Dims{9, 3};
  EXPECT_THAT(error(), HasSubstr("expected dims [9, 3], found [3, 2]"));
  spec.dims = Dims{9, 2};
  EXPECT_EQ(error(), "");
}

TEST(ParamsError, SeparateFiles) {
  const TempFolder folder;
  put_file(folder / "b", bytes_of("tests/data/params/float32"));
  const auto load = [&](const std::string& name) {
    ParamSpec spec;
    spec.name = name;
    const auto values = load_separate(folder.path(), spec);
    return values.ok() ? Ok() : values.status();
  };
  EXPECT_TRUE(load("b").ok());
  EXPECT_EQ(load("w").code(), StatusCode::kNotFound);
  EXPECT_THAT(load("w").to_string(), HasSubstr("/w, 'w': cannot open"));
  EXPECT_EQ(load("b/w").code(), StatusCode::kNotFound);
  for (const std::string name : {"../b", "/etc/passwd", "a/../../b", "", ".", "a//b", "b/"})
    EXPECT_EQ(load(name).code(), StatusCode::kInvalidData) << name;
  EXPECT_EQ(load(std::string("b\0c", 3)).code(), StatusCode::kInvalidData);
}

TEST(ParamsError, LinksDoNotLeadOutOfTheFolder) {
  const TempFolder folder;
  namespace fs = std::filesystem;
  fs::create_directories(folder / "model/sub");
  put_file(folder / "secret", bytes_of("tests/data/params/float32"));
  put_file(folder / "model/real", bytes_of("tests/data/params/float32"));
  fs::create_symlink("../secret", folder / "model/out");
  fs::create_directory_symlink("..", folder / "model/up");
  fs::create_symlink("../real", folder / "model/sub/in");
  const auto load = [&](const std::string& name) {
    ParamSpec spec;
    spec.name = name;
    const auto values = load_separate(folder / "model", spec);
    return values.ok() ? "" : values.status().to_string();
  };
  EXPECT_EQ(load("sub/in"), "");
  EXPECT_THAT(load("out"), HasSubstr("a symbolic link leads out of the folder"));
  EXPECT_THAT(load("up/secret"), HasSubstr("a symbolic link leads out of the folder"));
  const auto value = load_param(*ByteSource::open(folder / "secret"), {});
  EXPECT_FALSE(save_separate(folder / "model", NamedValue{"up/w", &*value}).ok());
  EXPECT_FALSE(fs::exists(folder / "w"));
}

TEST(ParamsError, OnlyRegularFilesAreOpened) {
  const TempFolder folder;
  EXPECT_EQ(ByteSource::open(folder.path()).status().code(), StatusCode::kInvalidData);
  EXPECT_EQ(ByteSource::open("/dev/zero").status().code(), StatusCode::kInvalidData);
  EXPECT_EQ(ByteSource::open(folder / "none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace millrace::io
