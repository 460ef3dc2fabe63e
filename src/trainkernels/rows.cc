#include "trainkernels/rows.h"

#include "trainkernels/table.h"

namespace levada::trainkernels {
namespace {

Table pick() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return avx512_table();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_table();
  return generic_table();
}

const Table& table() {
  static const Table picked = pick();
  return picked;
}

}  // namespace

template <>
const Rows<float>& rows<float>() {
  return table().f32;
}
template <>
const Rows<Bf16>& rows<Bf16>() {
  return table().bf16;
}

void softmax_tile(const Tile& tile, float* context, float* own, float* lse) {
  table().softmax_tile(tile, context, own, lse);
}
void softmax_tile_backward(const Tile& tile, const float* lse, const float* delta, float* context, float* dcontext,
                           float* own, float* down) {
  table().softmax_tile_backward(tile, lse, delta, context, dcontext, own, down);
}
double sum_of_squares(const float* values, std::int64_t count) { return table().sum_of_squares(values, count); }

}  // namespace levada::trainkernels
