// The index of readers and writers stays equal to a scan of all ops, for any edits; the name table
// assigns one id to each name.

#include <atomic>
#include <random>
#include <thread>

#include <gmock/gmock.h>

#include "framework/program.h"

namespace millrace {
namespace {

using Ops = std::vector<const Op*>;

Ops scan(const Block& block, const std::string& name, bool writers) {
  Ops found;
  for (const Op& op : block.ops())
    if (writers ? op.writes(name) : op.reads(name)) found.push_back(&op);
  return found;
}

Ops as_vector(const llvm::SmallVector<Op*, 4>& ops) {
  return {ops.begin(), ops.end()};
}

void expect_index_is_true(const Block& block, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const Ops readers = scan(block, name, false);
    const Ops writers = scan(block, name, true);
    ASSERT_EQ(as_vector(block.readers_of(name)), readers) << name;
    ASSERT_EQ(as_vector(block.writers_of(name)), writers) << name;
    ASSERT_EQ(block.has_readers(name), !readers.empty());
    ASSERT_EQ(block.has_writers(name), !writers.empty());
    ASSERT_EQ(block.first_writer(name), writers.empty() ? nullptr : writers.front());
    ASSERT_EQ(block.last_writer(name), writers.empty() ? nullptr : writers.back());
  }
}

// A random edit of one block over few names, so that names repeat in slots and ops.
class Editor {
 public:
  Editor(Block& block, uint32_t seed) : block_(block), random_(seed) {
    for (int i = 0; i < 12; ++i) names_.push_back("v" + std::to_string(i));
    for (const char* slot : {"X", "Y", "Z"}) slots_.emplace_back(slot);
  }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  void edit() {
    Op* const op = any_op();
    const int kind = pick(10);
    if (op == nullptr || kind < 3) {
      Op& added = kind == 0 ? block_.insert_before(op, "o") : block_.append_op("o");
      added.set_input(any(slots_), some_names()).set_output(any(slots_), some_names());
    } else if (kind == 3) {
      block_.erase(*op);
    } else if (kind == 4) {
      block_.clone_before(any_op(), *op);
    } else if (kind == 5) {
      pick(2) == 0 ? op->remove_input(any(slots_)) : op->remove_output(any(slots_));
    } else if (kind == 6) {
      pick(2) == 0 ? op->replace_input(any(names_), any(names_))
                   : op->replace_output(any(names_), any(names_));
    } else if (kind == 7) {
      const std::vector<std::string> names = some_names();
      op->add_slot(pick(2) == 0, any(slots_),
                   llvm::SmallVector<llvm::StringRef, 4>(names.begin(), names.end()));
    } else if (kind == 8) {
      block_.rename(any(names_), any(names_));
    } else {
      pick(2) == 0 ? op->set_input(any(slots_), some_names())
                   : op->set_output(any(slots_), some_names());
    }
  }

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<uint32_t>(count)); }
  const std::string& any(const std::vector<std::string>& list) {
    return list[static_cast<size_t>(pick(static_cast<int>(list.size())))];
  }
  Op* any_op() {
    const std::vector<Op*> ops = block_.op_vector();
    return ops.empty() ? nullptr : ops[static_cast<size_t>(pick(static_cast<int>(ops.size())))];
  }
  std::vector<std::string> some_names() {
    std::vector<std::string> out;
    for (int i = pick(4); i > 0; --i) out.push_back(any(names_));
    return out;
  }

  Block& block_;
  std::mt19937 random_;
  std::vector<std::string> names_;
  std::vector<std::string> slots_;
};

TEST(BlockIndex, StaysTrueUnderRandomEdits) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::unique_ptr<Program> program = Program::create();
    Editor editor(program->root(), seed);
    for (int step = 0; step < 300; ++step) {
      editor.edit();
      ASSERT_NO_FATAL_FAILURE(expect_index_is_true(program->root(), editor.names()))
          << "seed " << seed << " step " << step;
    }
    const std::unique_ptr<Program> copy = program->clone();
    expect_index_is_true(copy->root(), editor.names());
  }
}

TEST(BlockIndex, OrderSurvivesManyInsertionsAtOnePlace) {
  const std::unique_ptr<Program> program = Program::create();
  Block& block = program->root();
  Op& last = block.append_op("last").set_output("Out", "v");
  for (int i = 0; i < 1000; ++i) block.insert_before(&last, "o").set_output("Out", "v");
  EXPECT_EQ(as_vector(block.writers_of("v")), scan(block, "v", true));
  EXPECT_EQ(block.last_writer("v"), &last);
}

TEST(NameTable, OneIdForOneName) {
  NameTable names;
  const NameId a = names.intern("a");
  EXPECT_EQ(names.find("b"), std::nullopt);
  const NameId b = names.intern("b");
  EXPECT_NE(a, b);
  const char* const address = names.str(a).data();
  for (int i = 0; i < 10000; ++i) names.intern("name" + std::to_string(i));
  EXPECT_EQ(names.intern("a"), a);
  EXPECT_EQ(names.find("b"), b);
  EXPECT_EQ(names.str(a).data(), address);  // strings never move
  EXPECT_EQ(names.size(), 10002U);
  const std::string with_nul("x\0y", 3);
  EXPECT_EQ(names.str(names.intern(with_nul)).str(), with_nul);
}

TEST(NameTable, CopyOutlivesWhatItWasCopiedFrom) {
  auto names = std::make_unique<NameTable>();
  for (int i = 0; i < 100; ++i) names->intern("name" + std::to_string(i));
  auto copy = std::make_unique<NameTable>();
  copy->copy_from(*names);
  names->intern("later");
  EXPECT_EQ(copy->find("later"), std::nullopt);
  EXPECT_EQ(copy->intern("own"), static_cast<NameId>(100));
  EXPECT_EQ(names->find("own"), std::nullopt);
  NameTable second;
  second.copy_from(*copy);
  names.reset();
  copy.reset();
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(second.find("name" + std::to_string(i)), static_cast<NameId>(i));
  EXPECT_EQ(second.find("own"), static_cast<NameId>(100));
  NameTable empty;
  NameTable copy_of_empty;
  copy_of_empty.copy_from(empty);
  EXPECT_EQ(copy_of_empty.find("a"), std::nullopt);
  EXPECT_EQ(copy_of_empty.intern("a"), static_cast<NameId>(0));
}

TEST(ClonedOps, EditsOfAttributesStayWithOneCopy) {
  const std::unique_ptr<Program> program = Program::create();
  program->root().append_op("o").set_int("a", 1).set_int("b", 2);
  const std::unique_ptr<Program> copy = program->clone();
  Op& original = program->root().front();
  Op& cloned = copy->root().front();
  cloned.set_int("a", 10).set_int("c", 3);
  original.remove_attr("b");
  EXPECT_EQ(original.find_attr("a")->integer(), 1);
  EXPECT_EQ(original.attrs().size(), 1U);
  EXPECT_EQ(cloned.find_attr("a")->integer(), 10);
  EXPECT_EQ(cloned.find_attr("b")->integer(), 2);
  EXPECT_EQ(cloned.attrs().size(), 3U);
}

TEST(BlockIndex, FirstQuestionsMayComeAtOnce) {
  const std::unique_ptr<Program> program = Program::create();
  Block& block = program->root();
  for (int i = 0; i < 1000; ++i)
    block.append_op("o").set_input("X", "v" + std::to_string(i)).set_output("Out", "w");
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      if (block.last_writer("w") == &block.back() && block.has_readers("v7")) ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
  block.erase(block.back());
  EXPECT_EQ(block.last_writer("w"), &block.back());
}

}  // namespace
}  // namespace millrace
