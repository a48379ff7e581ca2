// Valid programs with one fault each: the verifier reports every fault of a known class under the
// rule that it violates, and does not crash on any edit.

#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/read_program.h"
#include "ops/verify.h"

namespace millrace::ops {
namespace {

constexpr const char* kPrograms[] = {
    "tests/fuzz/seeds/program/fc.pb",         "tests/fuzz/seeds/program/conditional_blocks.pb",
    "tests/fuzz/seeds/program/versioned.pb",  "tests/fuzz/seeds/program/fit_a_line_2018.pb",
    "tests/data/resnet50_train/main_program",
};

using Rng = std::mt19937_64;

// One edit that introduces a fault. Returns whether the program has an op to which it applies.
struct Mutation {
  const char* rule;
  std::function<bool(Program&, const OpRegistry&, Rng&)> apply;
};

template <typename T>
T& pick(std::vector<T>& from, Rng& rng) {
  return from[rng() % from.size()];
}

std::vector<Op*> all_ops(Program& program) {
  std::vector<Op*> ops;
  for (Block& block : program.blocks()) {
    for (Op& op : block.ops()) ops.push_back(&op);
  }
  return ops;
}

// A random op that matches; null if there is none.
Op* pick_op(Program& program, Rng& rng, const std::function<bool(const Op&)>& fits) {
  std::vector<Op*> ops;
  for (Op* const op : all_ops(program)) {
    if (fits(*op)) ops.push_back(op);
  }
  return ops.empty() ? nullptr : pick(ops, rng);
}

Var& pick_tensor(Program& program, Rng& rng) {
  std::vector<Var*> vars;
  for (Block& block : program.blocks()) {
    for (Var& var : block.vars()) {
      if (var.spec().has_tensor()) vars.push_back(&var);
    }
  }
  return *pick(vars, rng);
}

bool with_spec(Program& program, Rng& rng, const std::function<void(VarSpec&)>& edit) {
  Var& var = pick_tensor(program, rng);
  VarSpec spec = var.spec();
  edit(spec);
  var.set_spec(std::move(spec));
  return true;
}

bool has_names(const Slot* slot) {
  return slot != nullptr && !slot->args.empty();
}

// Name of a slot of the schema that the op uses and that satisfies the test; empty if there is
// none.
llvm::StringRef filled_input(const OpRegistry& registry, const Op& op,
                             const std::function<bool(const SlotDef&)>& fits) {
  const OpDef* const def = registry.find(op.type());
  if (def == nullptr) return {};
  for (const SlotDef& slot : def->inputs()) {
    if (fits(slot) && has_names(op.find_input(slot.name))) return slot.name;
  }
  return {};
}

const AttrDef* plain_attr(const OpRegistry& registry, const Op& op,
                          const std::function<bool(const AttrDef&)>& fits) {
  const OpDef* const def = registry.find(op.type());
  if (def == nullptr) return nullptr;
  for (const AttrDef& attr : def->attrs()) {
    if (fits(attr) && op.has_attr(attr.name)) return &attr;
  }
  return nullptr;
}

bool on_input(Program& program, const OpRegistry& registry, Rng& rng,
              const std::function<bool(const SlotDef&)>& fits,
              const std::function<void(Op&, llvm::StringRef)>& edit) {
  Op* const op =
      pick_op(program, rng, [&](const Op& o) { return !filled_input(registry, o, fits).empty(); });
  if (op == nullptr) return false;
  edit(*op, filled_input(registry, *op, fits));
  return true;
}

bool on_attr(Program& program, const OpRegistry& registry, Rng& rng,
             const std::function<bool(const AttrDef&)>& fits,
             const std::function<void(Op&, const AttrDef&)>& edit) {
  Op* const op =
      pick_op(program, rng, [&](const Op& o) { return plain_attr(registry, o, fits) != nullptr; });
  if (op == nullptr) return false;
  edit(*op, *plain_attr(registry, *op, fits));
  return true;
}

bool is_required(const SlotDef& slot) {
  return slot.arity == Arity::kOne || slot.arity == Arity::kMany;
}
bool is_single(const SlotDef& slot) {
  return slot.arity == Arity::kOne || slot.arity == Arity::kOptional;
}
bool has_range(const AttrDef& attr) {
  return attr.kind == AttrKind::kInt && attr.min > -1e9;
}
bool is_number(const AttrDef& attr) {
  return attr.kind == AttrKind::kInt || attr.kind == AttrKind::kFloat;
}

std::vector<Mutation> mutations() {
  using P = Program&;
  using R = const OpRegistry&;
  return {
      {"op-type",
       [](P p, R, Rng& rng) {
         pick_op(p, rng, [](const Op&) { return true; })->set_type("no_such_op");
         return true;
       }},
      {"var-twice",
       [](P p, R, Rng& rng) {
         const Var& var = pick_tensor(p, rng);
         var.block().add_declaration(var.name().str(), var.spec());
         return true;
       }},
      {"var-dims",
       [](P p, R, Rng& rng) {
         return with_spec(p, rng, [&](VarSpec& s) {
           s.dims = {3, -2 - static_cast<int64_t>(rng() % 100)};
         });
       }},
      {"var-rank",
       [](P p, R, Rng& rng) {
         return with_spec(p, rng, [](VarSpec& s) { s.dims.assign(10, 1); });
       }},
      {"var-bytes",
       [](P p, R, Rng& rng) {
         return with_spec(p, rng, [](VarSpec& s) {
           s.dims = {int64_t{1} << 40, -1, int64_t{1} << 40};
         });
       }},
      {"var-dtype",
       [](P p, R, Rng& rng) {
         return with_spec(p, rng, [](VarSpec& s) { s.dtype = static_cast<DType>(200); });
       }},
      {"var-kind",
       [](P p, R, Rng& rng) {
         return with_spec(p, rng, [](VarSpec& s) { s.kind = static_cast<VarKind>(3); });
       }},
      {"name",
       [](P p, R, Rng& rng) {
         Op* const op = pick_op(p, rng, [](const Op&) { return true; });
         op->set_attr(llvm::StringRef("a\0b", 3), AttrValue::of_int(1));
         return true;
       }},
      {"block-index", [](P p, R, Rng&) { return p.root().set_stated_index(5), true; }},
      {"block-parent", [](P p, R, Rng&) { return p.root().set_parent(0), true; }},
      {"block-forward", [](P p, R, Rng&) { return p.root().set_forward_block(99), true; }},
      {"undeclared-var",
       [](P p, R r, Rng& rng) {
         return on_input(p, r, rng, is_required, [](Op& op, llvm::StringRef slot) {
           op.set_input(slot, "nobody declared this");
         });
       }},
      {"slot-missing",
       [](P p, R r, Rng& rng) {
         return on_input(p, r, rng, is_required,
                         [](Op& op, llvm::StringRef slot) { op.remove_input(slot); });
       }},
      {"slot-count",
       [](P p, R r, Rng& rng) {
         return on_input(p, r, rng, is_single, [](Op& op, llvm::StringRef slot) {
           const std::string name = op.first_input(slot).str();
           op.set_input(slot, llvm::ArrayRef<std::string>({name, name}));
         });
       }},
      {"slot-twice",
       [](P p, R r, Rng& rng) {
         return on_input(p, r, rng, is_single, [](Op& op, llvm::StringRef slot) {
           op.add_slot(false, slot, {op.first_input(slot)});
         });
       }},
      {"slot-unknown",
       [](P p, R r, Rng& rng) {
         Op* const op = pick_op(p, rng, [&](const Op& o) {
           const OpDef* const def = r.find(o.type());
           return def != nullptr && !def->has_open_slots() && !o.type().endswith("_grad") &&
                  !o.inputs().empty() && has_names(&o.inputs()[0]);
         });
         if (op == nullptr) return false;
         op->set_input("NoSuchSlot", op->name_of(op->inputs()[0].args[0].name));
         return true;
       }},
      {"slot-kind",
       [](P p, R r, Rng& rng) {
         for (Block& block : p.blocks())
           block.declare("a rank table", VarSpec::shapeless(VarKind::kLodRankTable));
         return on_input(
             p, r, rng,
             [](const SlotDef& slot) {
               return (slot.kinds & kRankTable) == 0 && slot.arity == Arity::kOne;
             },
             [](Op& op, llvm::StringRef slot) { op.set_input(slot, "a rank table"); });
       }},
      {"attr-type",
       [](P p, R r, Rng& rng) {
         return on_attr(p, r, rng, is_number,
                        [](Op& op, const AttrDef& attr) { op.set_string(attr.name, "no number"); });
       }},
      {"attr-range",
       [](P p, R r, Rng& rng) {
         return on_attr(p, r, rng, has_range, [](Op& op, const AttrDef& attr) {
           op.set_int(attr.name, static_cast<int32_t>(attr.min) - 1);
         });
       }},
      {"attr-twice",
       [](P p, R r, Rng& rng) {
         return on_attr(p, r, rng, is_number, [](Op& op, const AttrDef& attr) {
           op.add_attr(Attr{op.program().names().intern(attr.name), AttrValue::of_int(1 << 20),
                            false, nullptr});
         });
       }},
      {"op-role",
       [](P p, R, Rng& rng) {
         pick_op(p, rng, [](const Op&) { return true; })->set_int("op_role", 7777);
         return true;
       }},
      {"op-role-var",
       [](P p, R, Rng& rng) {
         pick_op(p, rng, [](const Op&) { return true; })->set_strings("op_role_var", {"w"});
         return true;
       }},
      {"feed-fetch-col",
       [](P p, R, Rng& rng) {
         Op* const op =
             pick_op(p, rng, [](const Op& o) { return o.type() == "feed" || o.type() == "fetch"; });
         if (op == nullptr) return false;
         op->set_int("col", 4 + static_cast<int32_t>(rng() % 1000000));
         return true;
       }},
      {"sub-block",
       [](P p, R, Rng& rng) {
         Op* const op = pick_op(p, rng, [](const Op& o) { return o.has_attr("sub_block"); });
         if (op == nullptr) return false;
         const int32_t targets[] = {0, -1, 99, op->block().index()};
         op->set_attr("sub_block", AttrValue::of_block(targets[rng() % 4]));
         return true;
       }},
  };
}

class VerifyMutationTest : public ::testing::TestWithParam<const char*> {
 protected:
  VerifyMutationTest() : registry_(standard_registry()), program_(read_program(GetParam())) {}

  std::unique_ptr<OpRegistry> registry_;
  StatusOr<std::unique_ptr<Program>> program_;
};

TEST_P(VerifyMutationTest, TheProgramIsValid) {
  ASSERT_TRUE(program_.ok()) << program_.status().to_string();
  EXPECT_EQ(to_text(verify_program(*registry_, **program_)), "");
}

TEST_P(VerifyMutationTest, EveryFaultIsReportedUnderItsRule) {
  ASSERT_TRUE(program_.ok()) << program_.status().to_string();
  Rng rng(20240501);
  size_t applied = 0;
  for (const Mutation& mutation : mutations()) {
    for (int round = 0; round < 5; ++round) {
      const std::unique_ptr<Program> mutant = (*program_)->clone();
      if (!mutation.apply(*mutant, *registry_, rng)) continue;
      ++applied;
      std::vector<std::string> rules;
      const std::vector<Finding> findings = verify_program(*registry_, *mutant);
      for (const Finding& finding : findings) {
        if (finding.severity == Severity::kError) rules.emplace_back(finding.rule);
      }
      EXPECT_THAT(rules, ::testing::Contains(mutation.rule)) << to_text(findings);
    }
  }
  EXPECT_GE(applied, 80U);  // most faults apply to every program
}

// For these only termination is checked.
TEST_P(VerifyMutationTest, SurvivesAnyEdit) {
  ASSERT_TRUE(program_.ok()) << program_.status().to_string();
  Rng rng(7);
  VerifyOptions options;
  options.lint = true;
  size_t with_errors = 0;
  for (int round = 0; round < 40; ++round) {
    const std::unique_ptr<Program> mutant = (*program_)->clone();
    for (int edit = 0; edit < 6; ++edit) {
      Op* const op = pick_op(*mutant, rng, [](const Op&) { return true; });
      std::vector<llvm::StringRef> names;
      for (const Var& var : mutant->root().vars()) names.push_back(var.name());
      const auto slots = op->inputs();
      const auto attrs = op->attrs();
      switch (rng() % 6) {
        case 0:
          if (!slots.empty())
            op->set_input(op->name_of(slots[rng() % slots.size()].name), pick(names, rng));
          break;
        case 1:
          if (!attrs.empty())
            op->set_int(op->name_of(attrs[rng() % attrs.size()].name),
                        static_cast<int32_t>(rng() % 7) - 3);
          break;
        case 2:
          if (!attrs.empty())
            op->set_attr(op->name_of(attrs[rng() % attrs.size()].name),
                         AttrValue::of_ints({-1, 0, 1 << 30}));
          break;
        case 3: {
          Dims dims(rng() % 11, static_cast<int64_t>(rng() % 5) - 2);
          pick_tensor(*mutant, rng).set_dims(dims);
          break;
        }
        case 4:
          op->set_type(pick_op(*mutant, rng, [](const Op&) { return true; })->type());
          break;
        default:
          op->block().set_parent(static_cast<int32_t>(rng() % 5) - 1);
      }
    }
    if (has_errors(verify_program(*registry_, *mutant, options))) ++with_errors;
  }
  EXPECT_GT(with_errors, 10U);
}

INSTANTIATE_TEST_SUITE_P(Programs, VerifyMutationTest, ::testing::ValuesIn(kPrograms),
                         [](const auto& program) { return "p" + std::to_string(program.index); });

}  // namespace
}  // namespace millrace::ops
