#include "ops/registry.h"

// Reader objects of early releases, which fetch batches from files inside the program.
namespace millrace::ops {
namespace {

constexpr const char* kWhyNot =
    "readers inside a program are not run; feed the vars that 'read' fills";

}  // namespace

void add_io_reader(OpRegistry& registry) {
  registry.add(OpDef("read")
                   .doc("Out = the next batch of a reader")
                   .input("Reader", "the reader", Arity::kOne, kReaderKind)
                   .output("Out", "the vars of a batch", Arity::kMany)
                   .attr("throw_eof_exp", true, "end of data is an error")
                   .attr("infer_out", true, "no effect")
                   .attr("drop_last", true, "drop a last batch that is short")
                   .side_effects()
                   .unsupported(kWhyNot));
  registry.add(OpDef("create_double_buffer_reader")
                   .doc("reader that prepares the next batch while one is used")
                   .input("UnderlyingReader", "where batches come from", Arity::kOne, kReaderKind)
                   .output("Out", "the reader", Arity::kOne, kReaderKind)
                   .attr("place", "AUTO", "where batches are copied to")
                   .side_effects()
                   .unsupported(kWhyNot));
}

}  // namespace millrace::ops
