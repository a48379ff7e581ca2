// Writes the net for the benchmarks of parameter servers: ids of 26 slots are looked up in one
// sparse table, 13 numbers, three layers of relu, softmax over two classes, plain SGD.
//
//   make_ctr_net OUT [--vocab 1000000] [--dim 16] [--hidden 400]      writes OUT/main.pb,
//   OUT/startup.pb, and the programs without gradients: OUT/forward.pb, OUT/forward_startup.pb
//
// Feeds: ids [batch, 26, 1], dense [batch, 13], label [batch, 1]. Prints the name of the loss.

#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "framework/program.h"
#include "framework/program_file.h"
#include "frontend/layers.h"

namespace {

using namespace millrace;  // NOLINT(google-build-using-namespace): one short program

constexpr int kSlots = 26;
constexpr int kNumbers = 13;

struct Options {
  std::string out;
  int vocab = 1000000;
  int dim = 16;
  int hidden = 400;
};

// The trainer fetches rows from the servers; the table stays there.
Status save_main(const Network& net, const std::string& path) {
  const std::unique_ptr<Program> main = net.main().clone();
  for (Op& op : main->root().ops()) {
    if (op.type() == "lookup_table" || op.type() == "lookup_table_grad")
      op.set_bool("remote_prefetch", true);
  }
  return save_program(*main, path, true);
}

StatusOr<std::string> write_net(const Options& options) {
  Network net(1);
  const VarRef ids = net.data("ids", {-1, kSlots, 1}, DType::kInt64);
  const VarRef dense = net.data("dense", {-1, kNumbers});
  const VarRef label = net.data("label", {-1, 1}, DType::kInt64);
  const VarRef rows = layers::embedding(
      ids, options.vocab, options.dim,
      {.is_sparse = true, .param = {.name = "emb", .initializer = init::Uniform{-0.01F, 0.01F}}});
  VarRef x = layers::concat({layers::reshape(rows, {-1, kSlots * options.dim}), dense}, 1);
  for (int i = 0; i < 3; ++i) x = layers::fc(x, options.hidden, {.act = "relu"});
  const VarRef prob = layers::fc(x, 2, {.act = "softmax"});
  const VarRef loss = layers::mean(layers::cross_entropy(prob, label));
  MILLRACE_RETURN_IF_ERROR(save_main(net, options.out + "/forward.pb"));
  MILLRACE_RETURN_IF_ERROR(save_program(net.startup(), options.out + "/forward_startup.pb", true));
  MILLRACE_RETURN_IF_ERROR(net.minimize(loss, {.learning_rate = 1e-3}).status());
  MILLRACE_RETURN_IF_ERROR(save_main(net, options.out + "/main.pb"));
  MILLRACE_RETURN_IF_ERROR(save_program(net.startup(), options.out + "/startup.pb", true));
  return loss.name();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("writes the net for the benchmarks of parameter servers");
  app.add_option("OUT", options.out, "folder, which must exist")->required();
  app.add_option("--vocab", options.vocab, "rows of the table")->check(CLI::Range(1, 1 << 30));
  app.add_option("--dim", options.dim, "width of a row")->check(CLI::Range(1, 4096));
  app.add_option("--hidden", options.hidden, "width of the layers")->check(CLI::Range(1, 65536));
  CLI11_PARSE(app, argc, argv);
  const StatusOr<std::string> loss = write_net(options);
  if (!loss.ok()) {
    std::cerr << loss.status().to_string() << "\n";
    return 1;
  }
  std::cout << *loss << "\n";
  return 0;
}
