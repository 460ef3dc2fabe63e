#include <cfloat>
#include <climits>

#include "kernels/cuda/device_values.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sampler_rows.h"
#include "kernels/philox.h"

namespace levada::kernels::cuda {
namespace {

using u64 = unsigned long long;

constexpr int kThreads = 1024, kWarps = kThreads / 32, kWays = 3;
constexpr unsigned kAll = 0xffffffffu;
// Shared memory that a row may be kept in; larger ones stay where they are.
constexpr std::size_t kSharedBytes = 220 * 1024;

struct Shared {
  u64 partial[kWarps][kWays];
  int found;
};

__device__ u64 warp_total(u64 x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
}

// Every thread gets the block's sums.
template <int N>
__device__ void block_total(u64 (&x)[N], Shared& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();
  for (int n = 0; n < N; ++n) {
    x[n] = warp_total(x[n]);
    if (lane == 0) shared.partial[warp][n] = x[n];
  }
  __syncthreads();
  for (int n = 0; n < N; ++n) x[n] = warp_total(shared.partial[lane][n]);
}

// The smallest i such that measure(0) + … + measure(i) > target_of(sum of all).
template <class Measure, class Target>
__device__ int find_crossing(int count, const Measure& measure, const Target& target_of, Shared& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int part = (count + kWarps * 32 - 1) / (kWarps * 32) * 32;
  const int first = min(warp * part, count), end = min(first + part, count);
  u64 mine = 0;
  for (int i = first + lane; i < end; i += 32) mine += measure(i);
  mine = warp_total(mine);
  __syncthreads();
  if (lane == 0) shared.partial[warp][0] = mine;
  if (threadIdx.x == 0) shared.found = count - 1;
  __syncthreads();
  u64 total = 0, before = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) before = total;
    total += shared.partial[w][0];
  }
  const u64 target = target_of(total);
  if (before <= target && target < before + mine) {  // so in one warp, for all its lanes
    for (int at = first;; at += 32) {
      u64 passed = at + lane < end ? measure(at + lane) : 0;
      for (int step = 1; step < 32; step *= 2) {
        const u64 left = __shfl_up_sync(kAll, passed, step);
        if (lane >= step) passed += left;
      }
      const unsigned crossed = __ballot_sync(kAll, before + passed > target);
      if (crossed != 0) {
        if (lane == 0) shared.found = at + __ffs(static_cast<int>(crossed)) - 1;
        break;
      }
      before += __shfl_sync(kAll, passed, 31);
    }
  }
  __syncthreads();
  return shared.found;
}

// Order-preserving: a < b as floats if and only if key(a) < key(b), but for zeros of both signs.
__device__ unsigned key_of(float x) {
  const unsigned bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ float of_key(unsigned key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

// e^y for y <= 0, operation for operation as in kernels/sampling.cc.
__device__ float exp_of_negative(float y) {
  const bool counts = y >= -87.0f;
  const float bounded = counts ? y : -87.0f;
  constexpr float kRounder = 12582912.0f;
  const float n = __fsub_rn(__fadd_rn(__fmul_rn(bounded, 1.44269504088896341f), kRounder), kRounder);
  const float r = __fsub_rn(__fsub_rn(bounded, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, -2.12194440054690583e-4f));
  float p = 1.0f / 5040;
  for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    p = __fadd_rn(__fmul_rn(p, r), c);
  return counts ? __int_as_float(__float_as_int(p) + static_cast<int>(n) * (1 << 23)) : 0.0f;
}

// Weights as whole numbers: 2^18 of them sum up without overflow, in any order alike.
__device__ u64 whole(float weight) { return static_cast<u64>(weight * 0x1.0p45f); }

__device__ float clean(float x) { return fminf(fmaxf(x, -INFINITY), FLT_MAX) + 0.0f; }  // NaN: -inf; -0: +0

// One of the history's ids: found or put into the row's table.
__device__ void count_id(int id, int by, CountedId* table, int slots, int vocabulary) {
  if (id < 0 || id >= vocabulary) return;
  int at = static_cast<int>(static_cast<unsigned>(id) * 2654435761u % static_cast<unsigned>(slots));
  for (;; at = at + 1 == slots ? 0 : at + 1) {
    const int was = atomicCAS(&table[at].id_plus_1, 0, id + 1);
    if (was == 0 || was == id + 1) break;
  }
  if (by > 0) atomicAdd(&table[at].count, by);
}

__device__ void apply_penalties(const SamplingCall& call, const DeviceRow& row, float* logits) {
  CountedId* const table = call.table + row.table.first;
  const auto count = [&](int id, int by) { count_id(id, by, table, row.table.count, call.vocabulary); };
  for (int i = threadIdx.x; i < row.output.count; i += kThreads) count(__ldcg(call.ids + row.output.first + i), 1);
  for (int i = threadIdx.x; i < row.prompt.count; i += kThreads) count(__ldcg(call.ids + row.prompt.first + i), 0);
  if (threadIdx.x == 0 && row.appended_row >= 0 && call.input_ids != nullptr) {
    count(__ldcg(call.input_ids + row.appended_row), 1);
  }
  __threadfence();
  __syncthreads();
  for (int i = threadIdx.x; i < row.table.count; i += kThreads) {
    const int2 entry = __ldcg(reinterpret_cast<const int2*>(table + i));
    if (entry.x == 0) continue;
    float x = __ldcg(logits + entry.x - 1);
    if (entry.y > 0) {
      x = __fsub_rn(x, __fadd_rn(__fmul_rn(row.frequency, static_cast<float>(entry.y)), row.presence));
    }
    if (row.repetition != 1) x = x > 0 ? __fdiv_rn(x, row.repetition) : __fmul_rn(x, row.repetition);
    logits[entry.x - 1] = x;
    table[i] = {0, 0};
  }
  __syncthreads();
}

// Each id is there once, so no two threads meet.
__device__ void apply_bias(const SamplingCall& call, const DeviceRow& row, float* logits) {
  for (int i = threadIdx.x; i < row.bias_ids.count; i += kThreads) {
    const int id = __ldcg(call.ids + row.bias_ids.first + i);
    if (id < 0 || id >= call.vocabulary) continue;
    logits[id] = __fadd_rn(__ldcg(logits + id), __int_as_float(__ldcg(call.ids + row.bias_values.first + i)));
  }
  __syncthreads();
}

__device__ bool allows(const std::int32_t* mask, int words, int id) {
  return words == 0 || (id / 32 < words && (static_cast<unsigned>(__ldcg(mask + id / 32)) >> (id % 32) & 1u) != 0);
}

// Ordinary numbers, or -inf for what the mask forbids, from logits to values; the largest and the lowest id that has it.
__device__ u64 take_in(const SamplingCall& call, const DeviceRow& row, const float* logits, float* values, bool keep,
                       Shared& shared) {
  const std::int32_t* mask = call.ids + row.mask.first;
  u64 best = 0;
  constexpr int kAhead = 16;  // loads in flight: a thread has nothing else to wait with
  for (int first = threadIdx.x; first < call.vocabulary; first += kAhead * kThreads) {
    float x[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int i = first + a * kThreads;
      x[a] = i < call.vocabulary ? __ldcg(logits + i) : -INFINITY;
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int i = first + a * kThreads;
      if (i >= call.vocabulary) break;
      const float value = allows(mask, row.mask.count, i) ? clean(x[a]) : -INFINITY;
      if (keep) values[i] = value;
      best = max(best, u64{key_of(value)} << 32 | ~static_cast<unsigned>(i));
    }
  }
  for (int step = 16; step > 0; step /= 2) best = max(best, __shfl_xor_sync(kAll, best, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared.partial[threadIdx.x / 32][0] = best;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) best = max(best, shared.partial[w][0]);
  return best;
}

// Of a best-first order (value descending, id ascending) the members up to and including the border.
struct Border {
  float value = -INFINITY;
  int id = INT_MAX;
  __device__ bool holds(float x, int i) const { return x > value || (x == value && i <= id); }
};

// The border of the smallest best-first set whose measure is at least `wanted` > 0. `low` <= every value <= `high`;
// measure(x) is what a value counts. Cuts the keys between into four parts until one value is left.
template <class Measure>
__device__ Border border_of(const float* values, int count, u64 wanted, float low, float high, const Measure& measure,
                            Shared& shared) {
  unsigned from = key_of(low), past = key_of(high) + 1;  // measure of [from, …) >= wanted > measure of [past, …)
  u64 above = 0, inside = ULLONG_MAX;
  while (past - from > 1 && inside != wanted) {
    const unsigned step = max((past - from) / (kWays + 1), 1u);
    float limit[kWays];
    for (int w = 0; w < kWays; ++w) limit[w] = of_key(min(from + step * (w + 1), past));
    u64 sums[kWays] = {};
    for (int i = threadIdx.x; i < count; i += kThreads) {
      const float x = values[i];
      if (x < limit[0]) continue;
      const u64 much = measure(x);
#pragma unroll
      for (int w = 0; w < kWays; ++w) sums[w] += x >= limit[w] ? much : 0;
    }
    block_total(sums, shared);
    const unsigned base = from, end = past;
    for (int w = 0; w < kWays; ++w) {
      const unsigned at = min(base + step * (w + 1), end);
      if (sums[w] >= wanted) {
        from = at;
        inside = sums[w];
      } else if (at < past) {
        past = at;
        above = sums[w];
      }
    }
  }
  Border border{of_key(from), INT_MAX};
  if (inside != wanted) {
    const auto ties = [&](int i) -> u64 { return values[i] == border.value ? measure(border.value) : 0; };
    border.id = find_crossing(
        count, ties, [&](u64) { return wanted - above - 1; }, shared);
  }
  return border;
}

__device__ std::int32_t draw(const DeviceRow& row, float* values, int count, float largest, Shared& shared) {
  Border border;
  if (row.top_k > 0 && row.top_k < count) {
    border = border_of(
        values, count, static_cast<u64>(row.top_k), -INFINITY, largest, [](float) { return u64{1}; }, shared);
  }
  u64 mass[1] = {};
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const float x = values[i];
    const float weight = border.holds(x, i) ? exp_of_negative(__fdiv_rn(__fsub_rn(x, largest), row.temperature)) : 0.0f;
    values[i] = weight;
    mass[0] += whole(weight);
  }
  block_total(mass, shared);
  Border heavy;
  if (row.top_p < 1) {
    const double wanted = ceil(static_cast<double>(row.top_p) * static_cast<double>(mass[0]));
    heavy = border_of(values, count, wanted > 1 ? static_cast<u64>(wanted) : 1, 0.0f, 1.0f, whole, shared);
  }
  const float floor = fminf(row.min_p, 1.0f);
  const auto kept = [&](int i) -> u64 {
    const float weight = values[i];
    return weight >= floor && heavy.holds(weight, i) ? whole(weight) : 0;
  };
  const auto word = philox({static_cast<std::uint32_t>(row.position), 0, 0, 0},
                           {static_cast<std::uint32_t>(row.seed), static_cast<std::uint32_t>(row.seed >> 32)});
  const u64 u = (u64{word[1]} << 32 | word[0]) >> 11 << 11;  // 53 random bits, as a fraction of 2^64
  return find_crossing(
      count, kept, [&](u64 total) { return __umul64hi(u, total); }, shared);
}

// When nothing is left: the lowest id that the mask allows and that isn't banned, or else the lowest it allows.
__device__ std::int32_t lowest_allowed(const SamplingCall& call, const DeviceRow& row) {
  int masked_in = -1;
  for (int id = 0; id < call.vocabulary; ++id) {
    if (!allows(call.ids + row.mask.first, row.mask.count, id)) continue;
    bool banned = false;
    for (int i = 0; i < row.banned.count && !banned; ++i) banned = __ldcg(call.ids + row.banned.first + i) == id;
    if (!banned) return id;
    if (masked_in < 0) masked_in = id;
  }
  return max(masked_in, 0);
}

__global__ void __launch_bounds__(kThreads) sampling_kernel(SamplingCall call, bool in_shared) {
  extern __shared__ float row_values[];
  __shared__ Shared shared;
  let_successors_start();
  wait_for_predecessors();
  const DeviceRow row = call.rows[blockIdx.x];
  float* const logits = call.logits + static_cast<std::int64_t>(blockIdx.x) * call.stride;
  float* const values = in_shared ? row_values : logits;

  if (row.table.count > 0) apply_penalties(call, row, logits);
  if (row.bias_ids.count > 0) apply_bias(call, row, logits);
  for (int i = threadIdx.x; i < row.banned.count; i += kThreads) {
    const int id = __ldcg(call.ids + row.banned.first + i);
    if (id >= 0 && id < call.vocabulary) logits[id] = -INFINITY;
  }
  __syncthreads();
  const bool greedy = !(row.temperature > 0) || row.top_k == 1;
  const u64 best = take_in(call, row, logits, values, !greedy, shared);
  const float largest = of_key(static_cast<unsigned>(best >> 32));
  auto token = static_cast<std::int32_t>(~static_cast<unsigned>(best));
  if (largest == -INFINITY) {
    if (threadIdx.x == 0) token = lowest_allowed(call, row);
  } else if (!greedy) {
    token = draw(row, values, call.vocabulary, largest, shared);
  }
  if (threadIdx.x == 0) call.tokens[blockIdx.x] = token;
}

}  // namespace

Status launch_sampling(const SamplingCall& call, unsigned rows, cudaStream_t stream) {
  const std::size_t bytes = static_cast<std::size_t>(call.vocabulary) * sizeof(float);
  const bool in_shared = bytes <= kSharedBytes;
  static const cudaError_t allowed = cudaFuncSetAttribute(sampling_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                          static_cast<int>(kSharedBytes));
  LEVADA_RETURN_IF_ERROR(check_cuda(allowed, "shared memory for sampling"));
  return launch("sampling", sampling_kernel, {dim3(rows), kThreads, in_shared ? bytes : 0}, stream, call, in_shared);
}

}  // namespace levada::kernels::cuda
