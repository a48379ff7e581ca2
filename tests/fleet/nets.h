#pragma once

/// Networks of the tests that run fleet jobs: main program and startup program without an
/// optimizer.
namespace millrace::fleet {

// A layer over 12 rows; the batches of two workers together look all of them up.
inline constexpr const char* kRowsAndLayer[2] = {R"(# millrace program 1

block 0 {
  param emb: f32(12, 4)
  param w: f32(4, 3)
  param b: f32(3)
  var ids: i64(-1, 1)
  var e: f32(-1, 4)
  var h: f32(-1, 3)
  var o: f32(-1, 3)
  var q: f32(-1, 3)
  var loss: f32(1)
  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, remote_prefetch: true, padding_idx: -1l}
  mul X=e Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  elementwise_add X=h Y=b -> Out=o {axis: 1}
  square X=o -> Out=q
  mean X=q -> Out=loss
}
)",
                                                 R"(# millrace program 1

block 0 {
  persist emb: f32(12, 4)
  persist w: f32(4, 3)
  persist b: f32(3)
  uniform_random -> Out=emb {shape: [12l, 4l], seed: 1, min: -0.5, max: 0.5, dtype: 5}
  uniform_random -> Out=w {shape: [4l, 3l], seed: 2, min: -0.5, max: 0.5, dtype: 5}
  fill_constant -> Out=b {shape: [3l], value: 0.5, dtype: 5}
}
)"};
// The sum of two rows of one table, whose row 3 is padding.
inline constexpr const char* kPaddedLookups[2] = {R"(# millrace program 1

block 0 {
  param emb: f32(12, 4)
  param w: f32(4, 3)
  param b: f32(3)
  var ids: i64(-1, 1)
  var more: i64(-1, 1)
  var e: f32(-1, 4)
  var f: f32(-1, 4)
  var g: f32(-1, 4)
  var h: f32(-1, 3)
  var o: f32(-1, 3)
  var q: f32(-1, 3)
  var loss: f32(1)
  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, remote_prefetch: true, padding_idx: 3l}
  lookup_table Ids=more W=emb -> Out=f {is_sparse: true, remote_prefetch: true, padding_idx: 3l}
  elementwise_add X=e Y=f -> Out=g {axis: -1}
  mul X=g Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  elementwise_add X=h Y=b -> Out=o {axis: 1}
  square X=o -> Out=q
  mean X=q -> Out=loss
}
)",
                                                  kRowsAndLayer[1]};
inline constexpr const char* kRowsAlone[2] = {R"(# millrace program 1

block 0 {
  param emb: f32(12, 4)
  var ids: i64(-1, 1)
  var e: f32(-1, 4)
  var q: f32(-1, 4)
  var loss: f32(1)
  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, remote_prefetch: true, padding_idx: -1l}
  square X=e -> Out=q
  mean X=q -> Out=loss
}
)",
                                              R"(# millrace program 1

block 0 {
  persist emb: f32(12, 4)
  uniform_random -> Out=emb {shape: [12l, 4l], seed: 1, min: -0.5, max: 0.5, dtype: 5}
}
)"};
inline constexpr const char* kLayerAlone[2] = {R"(# millrace program 1

block 0 {
  param w: f32(4, 3)
  param b: f32(3)
  var x: f32(-1, 4)
  var h: f32(-1, 3)
  var o: f32(-1, 3)
  var q: f32(-1, 3)
  var loss: f32(1)
  mul X=x Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  elementwise_add X=h Y=b -> Out=o {axis: 1}
  square X=o -> Out=q
  mean X=q -> Out=loss
}
)",
                                               R"(# millrace program 1

block 0 {
  persist w: f32(4, 3)
  persist b: f32(3)
  uniform_random -> Out=w {shape: [4l, 3l], seed: 2, min: -0.5, max: 0.5, dtype: 5}
  fill_constant -> Out=b {shape: [3l], value: 0.5, dtype: 5}
}
)"};

}  // namespace millrace::fleet
