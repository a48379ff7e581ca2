// Pools over windows and regions of images.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kPoolRows[] = {
    {"max_pool2d_with_index", "max_pool2d_with_index", "X",
     "kernel_size<ksize:i32s strides:i32s paddings:i32s global_pooling:bool adaptive:bool "
     "ceil_mode:bool=false",
     "Out Mask"},
    {"pool2d", "pool2d", "X @ksize:i64s",
     "strides:i64s paddings:i64s ceil_mode:bool exclusive:bool data_format:str pooling_type:str "
     "global_pooling:bool adaptive:bool padding_algorithm:str !use_cudnn",
     "Out"},
    {"pool3d", "pool3d", "X",
     "kernel_size<ksize:i64s strides:i64s paddings:i64s ceil_mode:bool exclusive:bool "
     "data_format:str pooling_type:str global_pooling:bool adaptive:bool padding_algorithm:str "
     "!use_cudnn",
     "Out"},
    {"psroi_pool", "psroi_pool", "X ROIs RoisNum?",
     "pooled_height:i32 pooled_width:i32 output_channels:i32 spatial_scale:f32", "Out"},
    {"roi_align", "roi_align", "X ROIs RoisNum?",
     "pooled_height:i32 pooled_width:i32 spatial_scale:f32 sampling_ratio:i32 aligned:bool", "Out"},
    {"roi_pool", "roi_pool", "X ROIs RoisNum?",
     "pooled_height:i32 pooled_width:i32 spatial_scale:f32", "Out Argmax"},
    {"unpool", "unpool", "X Indices @output_size:i64s",
     "ksize:i32s strides:i32s padding<paddings:i32s data_format:str", "Out"},
};

}  // namespace

void add_pool_ops(Converters& table) {
  for (const Row& row : kPoolRows) table.rows[row.type] = &row;
}

}  // namespace millrace::interchange::pir
