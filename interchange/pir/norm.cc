// Normalizations.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kNormRows[] = {
    {"affine_channel", "affine_channel", "X Scale Bias", "data_layout:str", "Out"},
    {"batch_norm", "batch_norm_", "X Mean Variance Scale? Bias?",
     "is_test:bool momentum:f32 epsilon:f32 data_format<data_layout:str use_global_stats:bool "
     "trainable_statistics:bool",
     "Y MeanOut=Mean VarianceOut=Variance SavedMean SavedVariance ReserveSpace"},
    {"group_norm", "group_norm", "X Scale? Bias?",
     "epsilon:f64 groups:i32 data_format<data_layout:str", "Y Mean Variance"},
    {"instance_norm", "instance_norm", "X Scale? Bias?", "epsilon:f32",
     "Y SavedMean SavedVariance"},
    {"layer_norm", "layer_norm", "X Scale? Bias?", "epsilon:f32 begin_norm_axis:i32",
     "Y Mean Variance"},
    {"lrn", "lrn", "X", "n:i32 k:f32 alpha:f32 beta:f32 data_format:str", "Out MidOut"},
    {"norm", "norm", "X", "axis:i32 epsilon:f32 is_test:bool=false", "Out Norm"},
    {"spectral_norm", "spectral_norm", "Weight U V", "dim:i32 power_iters:i32 eps:f32", "Out"},
};

}  // namespace

void add_norm_ops(Converters& table) {
  for (const Row& row : kNormRows) table.rows[row.type] = &row;
}

}  // namespace millrace::interchange::pir
