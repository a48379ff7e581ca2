#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Saving and loading vars; formats in spec/model_format.md section 4.
namespace millrace::ops {
namespace {

OpDef file_op(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc).side_effects().capability(Capability::kFile);
  return def;
}

// A part of a file has the dims of attribute 'shape'; a whole file has the declared dims of Out.
Status infer_load(InferContext& ctx) {
  const auto seek = ctx.attr<int64_t>("seek");
  const auto shape = ctx.attr<std::vector<int64_t>>("shape");
  if (seek < 0) return Ok();
  const int64_t count = dims_product(shape);
  if (shape.empty() || count <= 0) {
    return ctx.error("attribute 'shape' is {}, expected positive dims because 'seek' is {}",
                     dims_text(shape), seek);
  }
  return Ok();
}

}  // namespace

void add_io_file(OpRegistry& registry) {
  registry.add(file_op("save", "writes X to a file")
                   .input("X", "any var with data", Arity::kOne, kAnyKind)
                   .output("kLookupTablePath", "name of the folder, set by the caller",
                           Arity::kOptional, kAnyKind)
                   .required_attr<std::string>("file_path", "file to write")
                   .attr("overwrite", true, "false: an existing file is an error")
                   .attr("save_as_fp16", false, "store as float16"));
  registry.add(file_op("save_combine", "writes all of X into one file, in order")
                   .input("X", "any vars with data", Arity::kMany, kAnyKind)
                   .output("Y", "the bytes, if save_to_memory", Arity::kOptional, kAnyKind)
                   .required_attr<std::string>("file_path", "file to write")
                   .attr("overwrite", true, "false: an existing file is an error")
                   .attr("save_as_fp16", false, "store as float16")
                   .attr("save_to_memory", false, "fill Y instead of a file"));
  registry.add(file_op("load", "reads a var, or a part of it, from a file")
                   .output("Out", "the var", Arity::kOne, kAnyKind)
                   .required_attr<std::string>("file_path", "file to read")
                   .attr("load_as_fp16", false, "convert to float16")
                   .attr("seek", int64_t{-1}, "first element; -1: the whole file")
                   .range(-1)
                   .attr("shape", std::vector<int64_t>{}, "dims of the part")
                   .infer(infer_load));
  registry.add(file_op("load_combine", "reads all of Out from one file, in order")
                   .output("Out", "the vars", Arity::kMany, kAnyKind)
                   .required_attr<std::string>("file_path", "file to read")
                   .attr("load_as_fp16", false, "convert to float16")
                   .attr("model_from_memory", false, "file_path has the bytes themselves"));
}

}  // namespace millrace::ops
