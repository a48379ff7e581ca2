#include "transpiler/distribute/emit.h"

#include "transpiler/distribute/op_builder.h"

namespace millrace::transpiler {

Op& emit_scale(Block& block, Op* where, llvm::StringRef x, llvm::StringRef out, float factor,
               int32_t role) {
  Op& op = block.insert_before(where, "scale");
  op.set_input("X", x).set_output("Out", out);
  op.set_float("scale", factor).set_float("bias", 0).set_bool("bias_after_scale", true);
  return finish(op, role);
}

Op& emit_sub(Block& block, Op* where, llvm::StringRef x, llvm::StringRef y, llvm::StringRef out,
             int32_t role) {
  Op& op = block.insert_before(where, "elementwise_sub");
  op.set_input("X", x).set_input("Y", y).set_output("Out", out);
  op.set_int("axis", -1).set_float("Scale_x", 1).set_float("Scale_y", 1).set_float("Scale_out", 1);
  op.set_string("mkldnn_data_type", "float32").set_bool("use_mkldnn", false);
  return finish(op, role);
}

Op& emit_assign(Block& block, Op* where, llvm::StringRef x, llvm::StringRef out, int32_t role) {
  Op& op = block.insert_before(where, "assign");
  op.set_input("X", x).set_output("Out", out);
  return finish(op, role);
}

Op& emit_sum(Block& block, Op* where, llvm::ArrayRef<std::string> xs, llvm::StringRef out,
             int32_t role) {
  Op& op = block.insert_before(where, "sum");
  op.set_input("X", xs).set_output("Out", out);
  op.set_string("mkldnn_data_type", "float32").set_bool("use_mkldnn", false);
  return finish(op, role);
}

Op& emit_concat(Block& block, Op* where, llvm::ArrayRef<std::string> xs, llvm::StringRef out,
                int32_t role) {
  Op& op = block.insert_before(where, "concat");
  op.set_input("X", xs).set_output("Out", out);
  op.set_int("axis", 0).set_string("mkldnn_data_type", "float32").set_bool("use_mkldnn", false);
  return finish(op, role);
}

}  // namespace millrace::transpiler
