#include <algorithm>
#include <memory>

#include "kernels/cpu/index.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/rnn/gru_tensors.h"
#include "kernels/cpu/rnn/lstm_tensors.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/registry.h"

// fusion_lstm, fusion_gru and fused_embedding_fc_lstm: projects the input here and then runs lstm
// or gru.
namespace millrace::kernels {
namespace rnn {
namespace {

// projected = x times weight, with the LoD of x.
Status project_input(const KernelContext& ctx, Gemm& gemm, const Tensor& x, const Tensor& weight,
                     Tensor& projected) {
  if (x.rank() != 2 || weight.rank() != 2 || x.dim(1) != weight.dim(0) ||
      x.dtype() != weight.dtype())
    return ctx.error("X {} and WeightX {} cannot be multiplied", describe(x), describe(weight));
  MILLRACE_RETURN_IF_ERROR(outer_sequences_of(x, "X").status());
  MILLRACE_RETURN_IF_ERROR(projected.resize(x.dtype(), {x.dim(0), weight.dim(1)}));
  projected.set_lod(x.lod());
  return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    return gemm(ctx.device(), {.rows = x.dim(0), .columns = weight.dim(1), .inner = x.dim(1)},
                x.data<T>(), weight.data<T>(), projected.data<T>());
  });
}

// projected = rows of the table, with the LoD of ids.
Status look_up_input(const KernelContext& ctx, const Tensor& ids, const Tensor& table,
                     Tensor& projected) {
  if (table.rank() != 2) return ctx.error("Embeddings must be a matrix, found {}", describe(table));
  MILLRACE_RETURN_IF_ERROR(outer_sequences_of(ids, "Ids").status());
  const int64_t width = table.dim(1);
  MILLRACE_RETURN_IF_ERROR(projected.resize(table.dtype(), {ids.numel(), width}));
  projected.set_lod(ids.lod());
  return with_index(ids, "Ids", [&](const auto* id) -> Status {
    MILLRACE_RETURN_IF_ERROR(check_range(id, ids.numel(), table.dim(0), "Ids"));
    return dispatch<FloatTypes>(table.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t r = 0; r < ids.numel(); ++r)
        std::copy_n(table.data<T>() + static_cast<int64_t>(id[r]) * width, width,
                    projected.data<T>() + r * width);
      return Ok();
    });
  });
}

struct FusedLstm {
  LstmSettings settings;
  Tensor projected;
  StepOrder order;
  Workspace work;
  Gemm gemm;
};

StatusOr<Kernel> make_fused_lstm(const KernelSetup& op, bool from_table) {
  auto state = std::make_shared<FusedLstm>();
  state->settings = lstm_settings(op, /*projected=*/false);
  state->settings.biased_input = from_table;
  const ArgIndex x = op.input(from_table ? "Ids" : "X");
  const ArgIndex first = op.input(from_table ? "Embeddings" : "WeightX");
  const ArgIndex weight = op.input("WeightH");
  const ArgIndex bias = op.input("Bias");
  const ArgIndex h0 = op.input("H0");
  const ArgIndex c0 = op.input("C0");
  const ArgIndex hidden = op.output("Hidden");
  const ArgIndex cell = op.output("Cell");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(
        from_table ? look_up_input(ctx, ctx.in(x), ctx.in(first), state->projected)
                   : project_input(ctx, state->gemm, ctx.in(x), ctx.in(first), state->projected));
    LstmTensors t;
    t.input = &state->projected;
    t.weight = &ctx.in(weight);
    t.bias = &ctx.in(bias);
    t.h0 = ctx.find_in(h0);
    t.c0 = ctx.find_in(c0);
    MILLRACE_RETURN_IF_ERROR(measure_lstm(state->settings, t));
    state->order.build(t.input->lod().level(0), state->settings.reverse);
    LstmOutputs out;
    out.fed_back = &ctx.out(hidden);
    out.cell = &ctx.out(cell);
    return dispatch<FloatTypes>(t.input->dtype(), [&](auto tag) {
      return run_lstm<typename decltype(tag)::type>(ctx, t, state->settings, out, state->order,
                                                    state->work, state->gemm);
    });
  });
}

StatusOr<Kernel> fusion_lstm(const KernelSetup& op) {
  return make_fused_lstm(op, /*from_table=*/false);
}
StatusOr<Kernel> fused_embedding_fc_lstm(const KernelSetup& op) {
  return make_fused_lstm(op, /*from_table=*/true);
}

StatusOr<Kernel> fusion_gru(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex first = op.input("WeightX");
  const ArgIndex weight = op.input("WeightH");
  const ArgIndex bias = op.input("Bias");
  const ArgIndex h0 = op.input("H0");
  const ArgIndex hidden = op.output("Hidden");
  auto projected = std::make_shared<Tensor>();
  return Kernel([=, state = gru_state(op)](const KernelContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(project_input(ctx, state->gemm, ctx.in(x), ctx.in(first), *projected));
    GruTensors t;
    t.input = projected.get();
    t.weight = &ctx.in(weight);
    t.bias = ctx.find_in(bias);
    t.h0 = ctx.find_in(h0);
    MILLRACE_RETURN_IF_ERROR(measure_gru(t));
    state->order.build(t.input->lod().level(0), state->reverse);
    GruOutputs out;
    out.hidden = &ctx.out(hidden);
    return dispatch<FloatTypes>(t.input->dtype(), [&](auto tag) {
      return run_gru<typename decltype(tag)::type>(ctx, t, out, *state);
    });
  });
}

}  // namespace
}  // namespace rnn

void add_rnn_fused_rnn(KernelRegistry& registry) {
  registry.add("fusion_lstm", rnn::fusion_lstm);
  registry.add("fused_embedding_fc_lstm", rnn::fused_embedding_fc_lstm);
  registry.add("fusion_gru", rnn::fusion_gru);
}

}  // namespace millrace::kernels
