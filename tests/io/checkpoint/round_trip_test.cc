// Saved values are loaded again, bit by bit: all element types, ranks 0 to 6, empty tensors, LoD,
// selected rows and records; values that cannot be saved are refused with the name of the var.
#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>

#include "io/checkpoint/folder.h"
#include "io/checkpoint/save_streams.h"
#include "tests/io/checkpoint/states.h"
#include "tests/io/temp_folder.h"

namespace millrace::io {
namespace {

using testing::counting;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::outcome;
using testing::same_bits;
using testing::TempFolder;

Value filled(DType dtype, const Dims& dims) {
  Value value;
  Tensor& tensor = value.as<Tensor>();
  EXPECT_TRUE(tensor.resize(dtype, dims).ok());
  for (int64_t i = 0; i < tensor.bytes(); ++i)
    tensor.raw()[i] = std::byte(dtype == DType::kBool ? i % 2 : i * 7 + 1);
  return value;
}

TEST(CheckpointRoundTrip, AllTypesAndRanks) {
  const TempFolder folder;
  std::vector<std::pair<std::string, Value>> values;
  for (const DType dtype : {DType::kBool, DType::kInt16, DType::kInt32, DType::kInt64,
                            DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kUint8,
                            DType::kInt8, DType::kBfloat16, DType::kComplex64, DType::kComplex128})
    values.emplace_back("t." + std::string(dtype_name(dtype)), filled(dtype, {3, 5}));
  Dims dims;
  for (int rank = 0; rank <= 6; ++rank) {
    values.emplace_back("rank" + std::to_string(rank), filled(DType::kFloat32, dims));
    dims.push_back(rank % 2 + 2);
  }
  values.emplace_back("empty", filled(DType::kFloat32, {0, 4}));
  values.emplace_back("name/with \"odd\" #0_0 \xC3\xA9", filled(DType::kFloat32, {1}));
  LocalState state;
  for (const auto& [name, value] : values) state.add(name, value);
  ASSERT_EQ(outcome(save_state_dict(state, folder / "c")), "ok");

  const auto checkpoint = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  EXPECT_EQ(checkpoint->manifest().tensors.size(), values.size());
  for (const auto& [name, value] : values) {
    const auto loaded = checkpoint->load(name);
    ASSERT_EQ(outcome(loaded), "ok") << name;
    EXPECT_TRUE(same_bits(*loaded->get_if<Tensor>(), *value.get_if<Tensor>())) << name;
  }
  EXPECT_TRUE(checkpoint->verify().empty());
}

TEST(CheckpointRoundTrip, LodRowsRecordsAndNotes) {
  const TempFolder folder;
  Value sequence = counting({5, 2});
  sequence.as<Tensor>().set_lod(Lod({{0, 1, 2}, {0, 2, 5}}));
  Value table;
  table.as<SelectedRows>() = {{7, 2, 7}, 10, std::move(counting({3, 4}).as<Tensor>())};
  const std::string record("one\0two", 7);
  LocalState state;
  state.add("sequence", sequence);
  state.add("table", table);
  state.add_record("sequences", record);
  state.add_record("nothing", "");
  state.user["job"] = "a job\nof two lines";
  ASSERT_EQ(outcome(save_checkpoint(state, folder / "root", 12)), "ok");

  const auto last = open_last_checkpoint(folder / "root");
  ASSERT_EQ(outcome(last), "ok");
  EXPECT_EQ(last->step, 12);
  const Checkpoint& checkpoint = last->checkpoint;
  EXPECT_EQ(checkpoint.manifest().user.at("job"), "a job\nof two lines");
  const auto loaded = checkpoint.load("sequence");
  ASSERT_EQ(outcome(loaded), "ok");
  EXPECT_EQ(loaded->get_if<Tensor>()->lod(), sequence.get_if<Tensor>()->lod());
  const auto rows = checkpoint.load("table");
  ASSERT_EQ(outcome(rows), "ok");
  EXPECT_THAT(rows->get_if<SelectedRows>()->rows, ElementsAre(7, 2, 7));
  EXPECT_EQ(rows->get_if<SelectedRows>()->height, 10);
  const auto sevens = checkpoint.load_rows("table", [](int64_t row) { return row == 7; });
  ASSERT_EQ(outcome(sevens), "ok");
  EXPECT_THAT(sevens->value.values<float>(), ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_EQ(*checkpoint.load_record("sequences"), record);
  EXPECT_EQ(*checkpoint.load_record("nothing"), "");
  EXPECT_THAT(outcome(checkpoint.load_record("sequences", 1)), HasSubstr("'sequences' of rank 1"));
}

// Values of every kind that are requested one after another.
TEST(CheckpointRoundTrip, ValuesThatAreAskedFor) {
  const TempFolder folder;
  std::map<std::string, Value> values;
  values["half"] = filled(DType::kFloat16, {5, 2});
  values["half"].as<Tensor>().set_lod(Lod({{0, 2, 5}}));
  values["table"].as<SelectedRows>() = {
      {7, 2, 7}, 10, std::move(filled(DType::kFloat64, {3, 4}).as<Tensor>())};
  TensorArray& array = values["array"].as<TensorArray>();
  array.resize(3);
  array[0] = std::move(filled(DType::kInt64, {2}).as<Tensor>());
  array[2] = std::move(filled(DType::kFloat32, {3, 1}).as<Tensor>());
  std::vector<TensorFileEntry> entries;
  for (const auto& [name, value] : values) {
    const auto entry = tensor_file_entry(name, value);
    ASSERT_EQ(outcome(entry), "ok");
    entries.push_back(*entry);
  }
  const auto load = [&](const std::string& name) { return clone(values.at(name)); };
  ASSERT_EQ(outcome(save_values(entries, load, folder / "c", {})), "ok");

  const auto checkpoint = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  EXPECT_TRUE(checkpoint->verify().empty());
  const auto half = checkpoint->load("half");
  ASSERT_EQ(outcome(half), "ok");
  EXPECT_TRUE(same_bits(*half->get_if<Tensor>(), *values["half"].get_if<Tensor>()));
  EXPECT_EQ(half->get_if<Tensor>()->lod(), values["half"].get_if<Tensor>()->lod());
  const auto table = checkpoint->load("table");
  ASSERT_EQ(outcome(table), "ok");
  EXPECT_THAT(table->get_if<SelectedRows>()->rows, ElementsAre(7, 2, 7));
  EXPECT_EQ(table->get_if<SelectedRows>()->height, 10);
  EXPECT_TRUE(same_bits(table->get_if<SelectedRows>()->value,
                        values["table"].get_if<SelectedRows>()->value));
  const auto elements = checkpoint->load("array");
  ASSERT_EQ(outcome(elements), "ok");
  const auto& loaded = *elements->get_if<TensorArray>();
  ASSERT_EQ(loaded.size(), 3U);
  EXPECT_TRUE(same_bits(loaded[0], array[0]));
  EXPECT_FALSE(loaded[1].initialized());
  EXPECT_TRUE(same_bits(loaded[2], array[2]));
}

TEST(CheckpointRoundTrip, StreamsWithManyRecords) {
  const TempFolder folder;
  std::vector<std::string> texts;
  for (size_t i = 0; i < 20; ++i) texts.emplace_back(i, 'r');
  std::vector<LocalRecord> records;
  for (const std::string& text : texts) records.push_back({"r" + text, text});
  ASSERT_EQ(outcome(save_streams({}, records, {}, folder / "c", {})), "ok");
  const auto checkpoint = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  for (const std::string& text : texts) EXPECT_EQ(*checkpoint->load_record("r" + text), text);
}

// Files of other programs may have other bytes than 0 and 1; a bool of C++ must not.
TEST(CheckpointRoundTrip, BoolsAreZeroOrOne) {
  const TempFolder folder;
  Value value = filled(DType::kBool, {3});
  value.as<Tensor>().raw()[2] = std::byte{2};
  LocalState state;
  state.add("v", value);
  ASSERT_EQ(outcome(save_state_dict(state, folder / "c")), "ok");
  const auto checkpoint = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  Value loaded;
  LoadTarget target;
  target.name = "v";
  target.value = &loaded;
  ASSERT_EQ(outcome(load_state_dict(*checkpoint, {target})), "ok");
  EXPECT_EQ(testing::bytes_of(*loaded.get_if<Tensor>()), std::string("\0\1\1", 3));
}

TEST(CheckpointRoundTrip, SameStateSameBytes) {
  const TempFolder folder;
  const Value a = counting({100});
  const Value b = counting({7, 3}, 5);
  for (const char* name : {"one", "two"}) {
    LocalState state;
    state.add("b", b);
    state.add("a", a);
    ASSERT_EQ(outcome(save_state_dict(state, folder / name)), "ok");
  }
  for (const char* file : {"/manifest.json", "/data-0-0.safetensors"}) {
    EXPECT_EQ(testing::bytes_of(folder / "one" + file), testing::bytes_of(folder / "two" + file));
  }
}

TEST(CheckpointRoundTrip, SplitsOverFiles) {
  const TempFolder folder;
  std::vector<Value> values;
  for (int i = 0; i < 10; ++i) values.push_back(counting({100}, static_cast<float>(i)));
  LocalState state;
  for (size_t i = 0; i < values.size(); ++i) state.add("v" + std::to_string(i), values[i]);
  CheckpointSaveOptions options;
  options.max_file_bytes = 1000;
  options.threads = 3;
  options.block_bytes = 64;
  ASSERT_EQ(outcome(save_state_dict(state, folder / "c", options)), "ok");
  const auto checkpoint = Checkpoint::open(folder / "c", {.threads = 3});
  ASSERT_EQ(outcome(checkpoint), "ok");
  EXPECT_EQ(checkpoint->manifest().files.size(), 5);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto loaded = checkpoint->load("v" + std::to_string(i));
    ASSERT_EQ(outcome(loaded), "ok");
    EXPECT_TRUE(same_bits(*loaded->get_if<Tensor>(), *values[i].get_if<Tensor>()));
  }
}

// Larger files are hashed by a second thread, concurrently with the writing one.
TEST(CheckpointRoundTrip, ThreadsDoNotChangeFiles) {
  const TempFolder folder;
  const Value large = counting({3 << 19});
  const Value small = counting({33, 5}, 7);
  LocalState state;
  state.add("large", large);
  state.add("small", small);
  for (const int threads : {1, 2, 5}) {
    CheckpointSaveOptions options;
    options.threads = threads;
    options.block_bytes = 1000000;
    uint64_t told = 0;
    options.progress = [&](uint64_t bytes) { told += bytes; };
    const std::string place = folder / std::to_string(threads);
    ASSERT_EQ(outcome(save_state_dict(state, place, options)), "ok");
    EXPECT_EQ(told, std::filesystem::file_size(place + "/data-0-0.safetensors"));
    for (const char* file : {"/manifest.json", "/data-0-0.safetensors"})
      EXPECT_TRUE(testing::bytes_of(folder / "1" + file) == testing::bytes_of(place + file));
    const auto checkpoint = Checkpoint::open(place);
    ASSERT_EQ(outcome(checkpoint), "ok");
    EXPECT_TRUE(same_bits(*checkpoint->load("large")->get_if<Tensor>(), *large.get_if<Tensor>()));
  }
}

TEST(CheckpointRoundTrip, ReplacesOnlyIfToldTo) {
  const TempFolder folder;
  const Value first = counting({4});
  const Value second = counting({4}, 10);
  LocalState state;
  state.add("v", first);
  ASSERT_EQ(outcome(save_state_dict(state, folder / "c")), "ok");
  LocalState other;
  other.add("v", second);
  EXPECT_THAT(outcome(save_state_dict(other, folder / "c")),
              HasSubstr("a checkpoint already exists"));
  CheckpointSaveOptions options;
  options.replace = Replace::kYes;
  ASSERT_EQ(outcome(save_state_dict(other, folder / "c", options)), "ok");
  const auto checkpoint = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  EXPECT_TRUE(same_bits(*checkpoint->load("v")->get_if<Tensor>(), *second.get_if<Tensor>()));
  EXPECT_THAT(*system_file_calls()->list(folder / "c"),
              ElementsAre("data-0-0-1.safetensors", "manifest.json"));
}

TEST(CheckpointRoundTrip, RefusesWhatCannotBeSaved) {
  const TempFolder folder;
  const auto refusal = [&](const LocalState& state) {
    return outcome(save_state_dict(state, folder / "c"));
  };
  const Value nothing;
  const Value some = counting({4});
  Value strings;
  strings.as<Strings>() = {"a"};
  LocalState state;
  state.add("v", nothing);
  EXPECT_THAT(refusal(state), HasSubstr("'v': the var has no value to save"));
  state.tensors[0].value = &strings;
  EXPECT_THAT(refusal(state),
              HasSubstr("dense tensors, selected rows and tensor arrays, found strings"));
  state.tensors[0] = {"v", &some, Dims{8}, Dims{5}, false};
  EXPECT_THAT(refusal(state), HasSubstr("expected a part of a tensor of shape [8]"));
  state.tensors[0] = {"v", &some, Dims{8}, Dims{4}, false};
  EXPECT_THAT(refusal(state), HasSubstr("leave a gap: expected 8 elements of shape [8], found 4"));
  state.tensors[0] = {"v", &some, {}, {}, false};
  state.add("v", some);
  EXPECT_THAT(refusal(state), HasSubstr("'v': the name occurs twice"));
  state.tensors.pop_back();
  state.add("bad\xFFname", some);
  EXPECT_THAT(refusal(state), HasSubstr("not valid UTF-8"));
  EXPECT_EQ(outcome(system_file_calls()->open(folder / "c/manifest.json")).find("ok"),
            std::string::npos);
  LocalState chatty;
  chatty.user["notes"] = std::string(1U << 20U, 'n');
  EXPECT_THAT(refusal(chatty), HasSubstr("member 'user': more than 1048576 bytes"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c")) << "nothing is left";
  const Value deep = filled(DType::kFloat32, Dims(17, 1));
  LocalState axes;
  axes.add("deep", deep);
  EXPECT_THAT(refusal(axes),
              HasSubstr("'deep#0_0_0_0_0_0_0_0_0_0_0_0_0_0_0_0_0': 17 dims, above 16"));
}

TEST(CheckpointRoundTrip, KeepsTheLastAndFallsBack) {
  const TempFolder folder;
  const std::string root = folder / "root";
  for (int step = 1; step <= 5; ++step) {
    const Value value = counting({4}, static_cast<float>(step));
    LocalState state;
    state.add("v", value);
    ASSERT_EQ(outcome(save_checkpoint(state, root, step, {}, 3)), "ok");
  }
  std::filesystem::create_directories(root + "/step-9");
  testing::put_file(root + "/step-9/data-0-0.safetensors", "half");
  testing::put_file(root + "/other", "x");
  const auto entries = list_checkpoints(root);
  ASSERT_EQ(outcome(entries), "ok");
  std::vector<std::pair<int64_t, bool>> found;
  for (const CheckpointEntry& entry : *entries) found.emplace_back(entry.step, entry.complete);
  EXPECT_THAT(found, ElementsAre(std::pair(3, true), std::pair(4, true), std::pair(5, true),
                                 std::pair(9, false)));
  // One flipped bit in the newest: the previous one is used, and the reason is reported.
  const std::string path = root + "/step-5/data-0-0.safetensors";
  std::string bytes = testing::bytes_of(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  testing::put_file(path, bytes);
  const auto last = open_last_checkpoint(root);
  ASSERT_EQ(outcome(last), "ok");
  EXPECT_EQ(last->step, 4);
  ASSERT_EQ(last->skipped.size(), 1);
  EXPECT_THAT(last->skipped[0].to_string(), HasSubstr("step-5/data-0-0.safetensors"));
  const auto garbage = collect_garbage(root, 1, true);
  ASSERT_EQ(outcome(garbage), "ok");
  EXPECT_THAT(*system_file_calls()->list(root), ElementsAre("other", "step-5"));
}

TEST(CheckpointRoundTrip, ReadsInTheOrderOfTheFile) {
  const TempFolder folder;
  std::map<std::string, Value> values;
  LocalState state;
  // In the file t10 is before t2, and 64-bit integers are before all others.
  for (int i = 0; i < 12; ++i) {
    const DType dtype = i % 3 == 0 ? DType::kInt64 : DType::kFloat32;
    const std::string name = "t" + std::to_string(i);
    values[name] = filled(dtype, {100});
    state.add(name, values[name]);
  }
  ASSERT_EQ(outcome(save_state_dict(state, folder / "c")), "ok");
  const auto manifest = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(manifest), "ok");
  std::vector<WantedBytes> wanted;
  std::vector<std::vector<std::byte>> memory(12);
  for (size_t i = 0; i < memory.size(); ++i) {
    const StoredTensor& tensor = *manifest->manifest().find("t" + std::to_string(i));
    memory[i].resize(tensor.bytes());
    want_box(tensor, Box::whole(tensor.dims), memory[i], wanted);
  }
  std::vector<uint64_t> places;
  for (const BlockRead& block : blocks_of(wanted, manifest->manifest().block_bytes))
    places.push_back(block.at());
  EXPECT_EQ(places.size(), 12);
  EXPECT_TRUE(std::ranges::is_sorted(places));
}

TEST(CheckpointRoundTrip, ShapesOfTargetsAreChecked) {
  const TempFolder folder;
  const Value dense = counting({4, 3});
  Value table;
  table.as<SelectedRows>() = {{7, 2}, 10, std::move(counting({2, 3}).as<Tensor>())};
  LocalState state;
  state.add("dense", dense);
  state.add("table", table);
  ASSERT_EQ(outcome(save_state_dict(state, folder / "c")), "ok");
  const auto checkpoint = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  const auto load = [&](const std::string& name, const Dims& dims) {
    Value value;
    LoadTarget target;
    target.name = name;
    target.value = &value;
    target.dims = dims;
    return outcome(load_state_dict(*checkpoint, {target}));
  };
  EXPECT_EQ(load("dense", {4, 3}), "ok");
  EXPECT_EQ(load("dense", {-1, 3}), "ok");
  EXPECT_THAT(load("dense", {4}), HasSubstr("'dense': expected shape [4], found [4, 3]"));
  EXPECT_THAT(load("dense", {4, 3, 1}), HasSubstr("expected shape [4, 3, 1], found [4, 3]"));
  EXPECT_THAT(load("dense", {5, 3}), HasSubstr("expected shape [5, 3], found [4, 3]"));
  EXPECT_THAT(load("dense", {4, 4}), HasSubstr("expected shape [4, 4], found [4, 3]"));
  EXPECT_EQ(load("table", {10, 3}), "ok") << "a table may have any number of rows";
  EXPECT_THAT(load("table", {2, 4}), HasSubstr("'table': expected shape [2, 4], found [2, 3]"));
}

TEST(CheckpointRoundTrip, CastsOnlyIfToldTo) {
  const TempFolder folder;
  Value stored;
  ASSERT_TRUE(stored.as<Tensor>().resize(DType::kFloat32, {5}).ok());
  std::ranges::copy(std::vector<float>{-1.5F, 0.0F, 300.0F, 1e20F, NAN},
                    stored.as<Tensor>().data<float>());
  LocalState state;
  state.add("v", stored);
  ASSERT_EQ(outcome(save_state_dict(state, folder / "c")), "ok");
  const auto checkpoint = Checkpoint::open(folder / "c");
  ASSERT_EQ(outcome(checkpoint), "ok");
  const auto load = [&](DType dtype, bool cast) {
    Value value;
    LoadTarget target;
    target.name = "v";
    target.value = &value;
    target.dtype = dtype;
    const Status status = load_state_dict(*checkpoint, {target}, {.cast = cast});
    return std::pair(outcome(status), std::move(value));
  };
  EXPECT_THAT(load(DType::kFloat64, false).first, HasSubstr("'v': expected dtype f64, found f32"));
  const auto bytes = load(DType::kInt8, true);
  ASSERT_EQ(bytes.first, "ok");
  EXPECT_THAT(bytes.second.get_if<Tensor>()->values<int8_t>(), ElementsAre(-1, 0, 127, 127, 0));
  const auto words = load(DType::kInt64, true);
  EXPECT_THAT(words.second.get_if<Tensor>()->values<int64_t>(),
              ElementsAre(-1, 0, 300, INT64_MAX, 0));
  const auto flags = load(DType::kBool, true);
  EXPECT_THAT(flags.second.get_if<Tensor>()->values<bool>(),
              ElementsAre(true, false, true, true, true));
  const auto half = load(DType::kFloat16, true);
  EXPECT_EQ(static_cast<float>(half.second.get_if<Tensor>()->values<Float16>()[2]), 300.0F);
  const auto wide = load(DType::kFloat64, true);
  EXPECT_EQ(wide.second.get_if<Tensor>()->values<double>()[0], -1.5);
  EXPECT_THAT(load(DType::kComplex64, true).first, HasSubstr("f32 cannot be cast to"));
}

}  // namespace
}  // namespace millrace::io
