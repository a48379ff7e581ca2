// Tensor arrays and complex numbers: in checkpoints and in safetensors files, from one rank and
// from several, resharded, cast, and refused if manifest or metadata contradict the data.
#include "io/checkpoint/arrays.h"

#include <algorithm>
#include <complex>
#include <cstring>

#include <gmock/gmock.h>

#include "io/checkpoint/folder.h"
#include "io/checkpoint/reshard.h"
#include "io/checkpoint/tensor_file.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using testing::counting;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::outcome;
using testing::same_bits;
using testing::TempFolder;

// Elements of three types and shapes, one with a LoD, one that was never written.
Value small_array() {
  Value value;
  TensorArray& array = value.as<TensorArray>();
  array.resize(4);
  array[0] = std::move(counting({3, 2}, 1).as<Tensor>());
  array[0].set_lod(Lod({{0, 1, 3}}));
  EXPECT_TRUE(array[2].resize(DType::kInt64, {2}).ok());
  std::ranges::copy(std::vector<int64_t>{-4, 9}, array[2].data<int64_t>());
  EXPECT_TRUE(array[3].resize(DType::kFloat32, {0, 5}).ok());
  return value;
}

Value complex_values(DType dtype, const Dims& dims) {
  Value value;
  Tensor& tensor = value.as<Tensor>();
  EXPECT_TRUE(tensor.resize(dtype, dims).ok());
  const int64_t parts = tensor.numel() * 2;
  for (int64_t i = 0; i < parts; ++i) {
    if (dtype == DType::kComplex128) {
      reinterpret_cast<double*>(tensor.raw())[i] = static_cast<double>(i) + 0.25;
    } else {
      reinterpret_cast<float*>(tensor.raw())[i] = static_cast<float>(i) + 0.25F;
    }
  }
  return value;
}

void expect_same(const Value& found, const Value& expected, const std::string& name) {
  ASSERT_EQ(found.kind(), expected.kind()) << name;
  const auto* const array = expected.get_if<TensorArray>();
  if (array == nullptr) {
    EXPECT_TRUE(same_bits(*found.get_if<Tensor>(), *expected.get_if<Tensor>())) << name;
    return;
  }
  const TensorArray& other = *found.get_if<TensorArray>();
  ASSERT_EQ(other.size(), array->size()) << name;
  for (size_t i = 0; i < array->size(); ++i) {
    ASSERT_EQ(other[i].initialized(), (*array)[i].initialized()) << name << i;
    if (!other[i].initialized()) continue;
    EXPECT_TRUE(same_bits(other[i], (*array)[i])) << name << i;
    EXPECT_EQ(other[i].lod(), (*array)[i].lod()) << name << i;
  }
}

class ArraysTest : public ::testing::Test {
 protected:
  ArraysTest() {
    values_["steps"] = small_array();
    values_["nothing"].as<TensorArray>().clear();
    values_["z64"] = complex_values(DType::kComplex64, {3, 2});
    values_["z128"] = complex_values(DType::kComplex128, {5, 3});
    values_["z128.scalar"] = complex_values(DType::kComplex128, {});
    values_["plain"] = counting({7});
  }
  [[nodiscard]] LocalState state() const {
    LocalState state;
    for (const auto& [name, value] : values_) state.add(name, value);
    return state;
  }
  void expect_all(const Checkpoint& checkpoint) const {
    EXPECT_THAT(checkpoint.manifest().value_names(),
                ElementsAre("nothing", "plain", "steps", "z128", "z128.scalar", "z64"));
    for (const auto& [name, value] : values_) {
      const auto loaded = checkpoint.load(name);
      ASSERT_EQ(outcome(loaded), "ok") << name;
      expect_same(*loaded, value, name);
    }
    EXPECT_TRUE(checkpoint.verify().empty());
  }

  TempFolder folder_;
  std::map<std::string, Value> values_;
};

TEST_F(ArraysTest, RoundTrip) {
  ASSERT_EQ(outcome(save_state_dict(state(), folder_ / "c")), "ok");
  const auto checkpoint = Checkpoint::open(folder_ / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  expect_all(*checkpoint);
  // elements can be read separately, and so can slices of complex tensors
  EXPECT_EQ(outcome(checkpoint->load("steps[2]")), "ok");
  EXPECT_THAT(outcome(checkpoint->load("steps[1]")), HasSubstr("no such tensor"));
  const auto part = checkpoint->load_box("z128", {{2, 1}, {2, 1}});
  ASSERT_EQ(outcome(part), "ok");
  const auto* const parts = reinterpret_cast<const double*>(part->raw());
  EXPECT_THAT(std::vector<double>(parts, parts + 4), ElementsAre(14.25, 15.25, 20.25, 21.25));
}

TEST_F(ArraysTest, CutAnew) {
  ASSERT_EQ(outcome(save_state_dict(state(), folder_ / "c")), "ok");
  const auto from = Checkpoint::open(folder_ / "c");
  ASSERT_EQ(outcome(from), "ok");
  ReshardOptions options;
  options.ranks = 3;
  options.split_whole = true;
  ASSERT_EQ(outcome(reshard_checkpoint(*from, folder_ / "c3", options)), "ok");
  const auto cut = Checkpoint::open(folder_ / "c3");
  ASSERT_EQ(outcome(cut), "ok");
  EXPECT_EQ(cut->manifest().find("z128")->chunks.size(), 3);
  expect_all(*cut);
}

TEST_F(ArraysTest, TargetsAreFilledTogether) {
  ASSERT_EQ(outcome(save_state_dict(state(), folder_ / "c")), "ok");
  const auto checkpoint = Checkpoint::open(folder_ / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  std::map<std::string, Value> loaded;
  std::vector<LoadTarget> targets;
  for (const auto& [name, value] : values_) {
    LoadTarget& target = targets.emplace_back();
    target.name = name;
    target.value = &loaded[name];
  }
  ASSERT_EQ(outcome(load_state_dict(*checkpoint, targets, {.allow_unexpected = false})), "ok");
  for (const auto& [name, value] : values_) expect_same(loaded[name], value, name);
  targets.pop_back();
  EXPECT_THAT(outcome(load_state_dict(*checkpoint, targets, {.allow_unexpected = false})),
              HasSubstr("'z64': the checkpoint has a tensor that is not wanted"));
  LoadTarget steps;
  steps.name = "steps";
  steps.value = &loaded["steps"];
  steps.dtype = DType::kFloat32;
  EXPECT_THAT(outcome(load_state_dict(*checkpoint, {steps})),
              HasSubstr("'steps': element 2: expected dtype f32, found i64"));
  ASSERT_EQ(outcome(load_state_dict(*checkpoint, {steps}, {.cast = true})), "ok");
  EXPECT_THAT((*loaded["steps"].get_if<TensorArray>())[2].values<float>(), ElementsAre(-4, 9));
  steps.box = Box{{0}, {1}};
  EXPECT_THAT(outcome(load_state_dict(*checkpoint, {steps})), HasSubstr("found an array"));
}

TEST_F(ArraysTest, RanksMustAgree) {
  const auto save = [&](Value other) {
    ThreadGroup group(2);
    const Value mine = small_array();
    const std::vector<Status> statuses = on_ranks(2, [&](int32_t rank) {
      const auto gather = group.member(rank);
      LocalState state;
      state.add("steps", rank == 0 ? mine : other);
      CheckpointSaveOptions options;
      options.replace = Replace::kYes;
      return save_state_dict(state, folder_ / "c", *gather, options);
    });
    EXPECT_EQ(outcome(statuses[0]), outcome(statuses[1]));
    return outcome(statuses[0]);
  };
  EXPECT_EQ(save(small_array()), "ok");
  Value shorter = small_array();
  shorter.as<TensorArray>().pop_back();
  EXPECT_THAT(save(std::move(shorter)),
              HasSubstr("'steps': ranks 0 and 1 disagree on the elements of an array: 3 of 4 and 2 "
                        "of 3"));
  EXPECT_THAT(save(counting({2})), HasSubstr("'steps': ranks disagree on the kind"));
  const auto checkpoint = Checkpoint::open(folder_ / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  expect_same(*checkpoint->load("steps"), small_array(), "steps");
}

TEST_F(ArraysTest, RefusesArraysThatAreNoWholeOrMeetANameOfTheirs) {
  LocalState bad;
  bad.add_part("steps", values_["steps"], {8}, {0});
  EXPECT_THAT(outcome(save_state_dict(bad, folder_ / "c")),
              HasSubstr("'steps': a tensor array has no parts"));
  LocalState twice = state();
  twice.add("steps[0]", values_["plain"]);
  EXPECT_THAT(outcome(save_state_dict(twice, folder_ / "c")),
              HasSubstr("'steps[0]': the name occurs twice"));
  LocalState again = state();
  again.add("nothing", values_["nothing"]);
  EXPECT_THAT(outcome(save_state_dict(again, folder_ / "c")),
              HasSubstr("'nothing': the name occurs twice"));
}

TEST_F(ArraysTest, ManifestsAreChecked) {
  ASSERT_EQ(outcome(save_state_dict(state(), folder_ / "c")), "ok");
  const auto good = Checkpoint::open(folder_ / "c");
  ASSERT_EQ(outcome(good), "ok");
  const auto refusal = [&](const auto& change) {
    Manifest manifest = good->manifest();
    change(manifest);
    return outcome(parse_manifest(manifest_text(manifest), "m"));
  };
  EXPECT_EQ(refusal([](Manifest&) {}), "ok");
  EXPECT_THAT(refusal([](Manifest& m) { m.step = -1; }),
              HasSubstr("member 'step': expected a non-negative integer"));
  EXPECT_THAT(refusal([](Manifest& m) { m.arrays[1].written[1] = true; }),
              HasSubstr("'steps': element 1 of 4: expected a dense tensor, found none"));
  EXPECT_THAT(refusal([](Manifest& m) { m.arrays[1].written.resize(60, true); }),
              HasSubstr("'steps': array length 60: the manifest lists at most"));
  EXPECT_THAT(refusal([](Manifest& m) { m.arrays[0].name = "plain"; }),
              HasSubstr("'plain': a tensor and an array have the same name"));
  EXPECT_THAT(refusal([](Manifest& m) { std::swap(m.arrays[0], m.arrays[1]); }),
              HasSubstr("expected names in order"));
}

TEST_F(ArraysTest, InSafetensorsFiles) {
  std::vector<TensorFileEntry> entries;
  for (const auto& [name, value] : values_) {
    auto entry = tensor_file_entry(name, value);
    ASSERT_EQ(outcome(entry), "ok");
    entries.push_back(*std::move(entry));
  }
  int loads = 0;
  const auto load = [&](const std::string& name) {
    ++loads;
    return clone(values_.at(name));
  };
  const std::string path = folder_ / "w.safetensors";
  ASSERT_EQ(outcome(write_tensor_file(path, entries, load, Replace::kNo)), "ok");
  EXPECT_EQ(loads, 6);  // elements of one type are consecutive: two changes of type
  const auto file = TensorFile::open(path);
  ASSERT_EQ(outcome(file), "ok");
  EXPECT_THAT(file->names(),
              ElementsAre("nothing", "plain", "steps", "z128", "z128.scalar", "z64"));
  for (const auto& [name, value] : values_) {
    const auto loaded = file->load(name);
    ASSERT_EQ(outcome(loaded), "ok") << name;
    expect_same(*loaded, value, name);
  }
  // the view of other readers: float64 with one more axis
  const auto raw = system_file_calls()->open(path);
  ASSERT_EQ(outcome(raw), "ok");
  const auto header = read_safetensors_header(**raw);
  ASSERT_EQ(outcome(header), "ok");
  const auto z = std::ranges::find(header->entries, "z128", &SafetensorsEntry::name);
  EXPECT_EQ(z->dtype, DType::kFloat64);
  EXPECT_THAT(z->dims, ElementsAre(5, 3, 2));
}

TEST_F(ArraysTest, MetadataOfFilesIsChecked) {
  const auto refusal = [&](const std::map<std::string, std::string>& metadata) {
    std::vector<SafetensorsEntry> entries = {{"x", DType::kFloat64, {2}, 0, 0}};
    const auto header = lay_out_safetensors(entries, metadata);
    EXPECT_EQ(outcome(header), "ok");
    testing::put_file(folder_ / "f", *header + std::string(16, '\0'));
    return outcome(TensorFile::open(folder_ / "f"));
  };
  EXPECT_EQ(refusal({{"dtype:x", "c128"}}), "ok");
  EXPECT_THAT(refusal({{"dtype:y", "c128"}}),
              HasSubstr("expected a known type, for a tensor of the file"));
  EXPECT_THAT(refusal({{"dtype:x", "f16"}}), HasSubstr("does not fit f64 of shape [2]"));
  EXPECT_THAT(refusal({{"dtype:x", "quaternion"}}), HasSubstr("\"quaternion\""));
  EXPECT_THAT(refusal({{"array:x", "1"}}), HasSubstr("no tensor of that name"));
  EXPECT_THAT(refusal({{"array:a", "99999999999"}}), HasSubstr("'a': array of \"99999999999\""));
  EXPECT_THAT(refusal({{"array:a", "-1"}}), HasSubstr("'a': array of \"-1\""));
}

TEST_F(ArraysTest, RowsOfTablesAreChecked) {
  const auto load = [&](int64_t row, const std::string& height) {
    std::vector<SafetensorsEntry> entries = {{"t", DType::kFloat32, {1, 1}, 0, 0},
                                             {"t.rows", DType::kInt64, {1}, 0, 0}};
    const auto header = lay_out_safetensors(entries, {{"rows:t", height}});
    EXPECT_EQ(outcome(header), "ok");
    std::string data(12, '\0');  // 64-bit integers are first
    std::memcpy(data.data(), &row, sizeof row);
    testing::put_file(folder_ / "f", *header + data);
    const auto file = TensorFile::open(folder_ / "f");
    return outcome(file.ok() ? file->load("t").status() : file.status());
  };
  EXPECT_EQ(load(2, "3"), "ok");
  EXPECT_THAT(load(3, "3"), HasSubstr("'t': row 3: expected 0 to 2"));
  EXPECT_EQ(load(3, "0"), "ok") << "a table without a height has any number of rows";
}

}  // namespace
}  // namespace millrace::io
